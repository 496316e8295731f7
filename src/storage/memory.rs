//! Files in memory, which know what a power loss would leave of them.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use parking_lot::Mutex;

use super::{Hold, ReadAt, Storage, WriteAt};
use crate::error::{Error, Result};

/// A directory in memory. A clone is the same directory.
#[derive(Debug, Clone, Default)]
pub struct Memory {
    state: Arc<Mutex<State>>,
}

#[derive(Debug, Default)]
struct State {
    files: HashMap<String, Content>,
    /// Names that a power loss leaves, with what they lead to.
    durable: HashMap<String, Content>,
    held: HashMap<String, Holders>,
}

type Content = Arc<Mutex<Bytes>>;

#[derive(Debug, Default)]
struct Bytes {
    present: Vec<u8>,
    synced: Vec<u8>,
}

#[derive(Debug, Default)]
struct Holders {
    alone: bool,
    count: usize,
}

impl Memory {
    /// An empty directory.
    pub fn new() -> Self {
        Self::default()
    }

    /// What a power loss leaves: names that were synced, with the bytes that were.
    pub fn after_power_loss(&self) -> Self {
        let state = self.state.lock();
        let left = |content: &Content| {
            let synced = content.lock().synced.clone();
            Arc::new(Mutex::new(Bytes { present: synced.clone(), synced }))
        };
        let files: HashMap<String, Content> = state.durable.iter().map(|(name, content)| (name.clone(), left(content))).collect();
        Self { state: Arc::new(Mutex::new(State { durable: files.clone(), files, held: HashMap::new() })) }
    }

    /// What the end of the process leaves: everything that was written.
    pub fn after_kill(&self) -> Self {
        let state = self.state.lock();
        let left = |content: &Content| {
            let present = content.lock().present.clone();
            Arc::new(Mutex::new(Bytes { synced: present.clone(), present }))
        };
        let files: HashMap<String, Content> = state.files.iter().map(|(name, content)| (name.clone(), left(content))).collect();
        Self { state: Arc::new(Mutex::new(State { durable: files.clone(), files, held: HashMap::new() })) }
    }

    /// Names and lengths of all files.
    pub fn lengths(&self) -> Vec<(String, usize)> {
        let state = self.state.lock();
        let mut lengths: Vec<_> = state.files.iter().map(|(name, content)| (name.clone(), content.lock().present.len())).collect();
        lengths.sort();
        lengths
    }

    /// Changes the bytes of a file, past all rules.
    pub fn damage(&self, name: &str, damage: impl FnOnce(&mut Vec<u8>)) {
        if let Some(content) = self.state.lock().files.get(name) {
            damage(&mut content.lock().present);
        }
    }

    fn find(&self, name: &str) -> Result<Content> {
        let found = self.state.lock().files.get(name).cloned();
        found.ok_or_else(|| Error::io(name.to_string(), &std::io::ErrorKind::NotFound.into()))
    }

    fn find_or_make(&self, name: &str) -> Content {
        self.state.lock().files.entry(name.to_string()).or_default().clone()
    }
}

impl Storage for Memory {
    fn describe(&self, name: &str) -> String {
        name.to_string()
    }

    fn list(&self, folder: &str) -> Result<Vec<String>> {
        let prefix = if folder.is_empty() { String::new() } else { format!("{folder}/") };
        let state = self.state.lock();
        let inside = state.files.keys().filter_map(|name| name.strip_prefix(&prefix));
        Ok(inside.filter(|name| !name.contains('/')).map(String::from).collect())
    }

    fn open(&self, name: &str) -> Result<Arc<dyn ReadAt>> {
        Ok(Arc::new(MemoryFile { name: name.to_string(), content: self.find(name)? }))
    }

    fn write(&self, name: &str) -> Result<Box<dyn WriteAt>> {
        Ok(Box::new(MemoryFile { name: name.to_string(), content: self.find_or_make(name) }))
    }

    fn replace(&self, name: &str, bytes: &[u8]) -> Result<()> {
        let content = Arc::new(Mutex::new(Bytes { present: bytes.to_vec(), synced: bytes.to_vec() }));
        let mut state = self.state.lock();
        state.files.insert(name.to_string(), content.clone());
        state.durable.insert(name.to_string(), content);
        Ok(())
    }

    fn sync_folder(&self, folder: &str) -> Result<()> {
        let names: HashSet<String> = self.list(folder)?.into_iter().collect();
        let prefix = if folder.is_empty() { String::new() } else { format!("{folder}/") };
        let mut state = self.state.lock();
        let inside = |name: &str| name.strip_prefix(&prefix).is_some_and(|rest| !rest.contains('/'));
        state.durable.retain(|name, _| !inside(name));
        for name in names {
            let name = format!("{prefix}{name}");
            if let Some(content) = state.files.get(&name).cloned() {
                state.durable.insert(name, content);
            }
        }
        Ok(())
    }

    fn remove(&self, name: &str) -> Result<()> {
        self.state.lock().files.remove(name);
        Ok(())
    }

    fn hold(&self, name: &str, alone: bool) -> Result<Option<Box<dyn Hold>>> {
        if alone {
            self.find_or_make(name);
        } else {
            self.find(name)?;
        }
        let mut state = self.state.lock();
        let holders = state.held.entry(name.to_string()).or_default();
        if holders.alone || alone && holders.count > 0 {
            return Ok(None);
        }
        holders.alone = alone;
        holders.count += 1;
        Ok(Some(Box::new(MemoryHold { memory: self.clone(), name: name.to_string() })))
    }
}

#[derive(Debug)]
struct MemoryFile {
    name: String,
    content: Content,
}

impl ReadAt for MemoryFile {
    fn len(&self) -> Result<u64> {
        Ok(self.content.lock().present.len() as u64)
    }

    fn read_at(&self, offset: u64, out: &mut [u8]) -> Result<()> {
        let content = self.content.lock();
        let part = usize::try_from(offset).ok().and_then(|start| content.present.get(start..start.checked_add(out.len())?));
        let part = part.ok_or_else(|| {
            Error::corrupt(self.name.clone(), format!("the file ends before byte {}", offset.saturating_add(out.len() as u64)))
        })?;
        out.copy_from_slice(part);
        Ok(())
    }
}

impl WriteAt for MemoryFile {
    fn write_at(&mut self, offset: u64, bytes: &[u8]) -> Result<()> {
        let mut content = self.content.lock();
        let (start, end) = (offset as usize, offset as usize + bytes.len());
        if content.present.len() < end {
            content.present.resize(end, 0);
        }
        content.present[start..end].copy_from_slice(bytes);
        Ok(())
    }

    fn sync(&mut self) -> Result<()> {
        let mut content = self.content.lock();
        content.synced = content.present.clone();
        Ok(())
    }
}

#[derive(Debug)]
struct MemoryHold {
    memory: Memory,
    name: String,
}

impl Hold for MemoryHold {
    fn note(&self, text: &str) -> Result<()> {
        self.memory.find_or_make(&self.name).lock().present = text.as_bytes().to_vec();
        Ok(())
    }
}

impl Drop for MemoryHold {
    fn drop(&mut self) {
        if let Some(holders) = self.memory.state.lock().held.get_mut(&self.name) {
            holders.count -= 1;
            holders.alone = false;
        }
    }
}
