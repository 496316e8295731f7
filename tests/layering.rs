//! A module imports only from modules above it in the table of `src/lib.rs`. The table is the one source of the order.
//!
//! Read as text, comments and test modules left out: every `crate::name`, and every `super::` that reaches the crate's root.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// What may be named although it is lower in the table: the module, and the path after `crate::`.
///
/// `error` lists the instruction sets of a processor in a message.
const ALLOWED: [(&str, &str); 1] = [("error", "kernel::Isa")];

/// The crate's order of modules, and where the names at its root come from (`pub use error::{Error, Result}`).
struct Layers {
    order: Vec<String>,
    root: BTreeMap<String, String>,
}

impl Layers {
    /// Reads both from the text of `lib.rs`.
    fn parse(lib: &str) -> Self {
        let rows = lib.lines().filter_map(|line| line.strip_prefix("//! | "));
        let names = rows.filter_map(|row| row.trim_start_matches('[').strip_prefix('`')?.split_once('`'));
        let order = names.map(|(name, _)| name.to_string()).collect();
        let code = code_of(lib);
        let exports = code.split("pub use ").skip(1).filter_map(|statement| statement.split_once("::"));
        let root = exports.flat_map(|(module, names)| leaves(names).into_iter().map(|name| (name, module.to_string()))).collect();
        Self { order, root }
    }

    /// The place of a module, or of the module that a name at the root comes from.
    fn place(&self, name: &str) -> Option<usize> {
        let module = self.root.get(name).map_or(name, String::as_str);
        self.order.iter().position(|each| each == module)
    }

    /// What `source`, a file of `module` at `depth` below the crate's root, names that is not above it.
    fn violations(&self, module: &str, depth: usize, source: &str) -> Vec<String> {
        let Some(own) = self.place(module) else {
            return vec![format!("module `{module}` is not in the table of lib.rs")];
        };
        let mut paths = paths_from_root(&code_of(source), depth);
        paths.sort();
        paths.dedup();
        paths.iter().filter_map(|path| self.judge(module, own, path)).collect()
    }

    /// Why `module` at place `own` may not name `path`, if it may not.
    fn judge(&self, module: &str, own: usize, path: &str) -> Option<String> {
        if ALLOWED.iter().any(|&(who, what)| who == module && within(path, what)) {
            return None;
        }
        let name = path.split("::").next().unwrap_or_default();
        match self.place(name) {
            Some(place) if place <= own => None,
            Some(_) => Some(format!("module `{module}` names `crate::{path}`, which is below it in the table of lib.rs")),
            None => Some(format!("module `{module}` names `crate::{path}`, which is not in the table of lib.rs")),
        }
    }
}

/// Whether `path` is `what` or something in it.
fn within(path: &str, what: &str) -> bool {
    path.strip_prefix(what).is_some_and(|rest| rest.is_empty() || rest.starts_with("::"))
}

/// A source without its comments and without its unit tests, which stand in a module at the end of a file.
fn code_of(source: &str) -> String {
    let before_tests = source.lines().take_while(|line| !line.trim_start().starts_with("mod tests {"));
    before_tests.map(|line| line.split("//").next().unwrap_or_default()).collect::<Vec<_>>().join("\n")
}

/// Every path that starts at the crate's root, without `crate::`; groups in braces are taken apart.
fn paths_from_root(code: &str, depth: usize) -> Vec<String> {
    let up = "super::".repeat(depth);
    [Some("crate::"), (depth > 0).then_some(up.as_str())].into_iter().flatten().flat_map(|start| paths_after(code, start)).collect()
}

/// The paths that follow each whole `start` in `code`.
fn paths_after(code: &str, start: &str) -> Vec<String> {
    let whole = |at: usize| !code[..at].ends_with(|before: char| before.is_alphanumeric() || before == '_' || before == ':');
    code.match_indices(start).filter(|&(at, _)| whole(at)).flat_map(|(at, _)| leaves(&code[at + start.len()..])).collect()
}

/// The paths of one use tree: `a::{b, c::d}` is `a::b` and `a::c::d`.
fn leaves(tree: &str) -> Vec<String> {
    let name_end = tree.find(|each: char| !(each.is_alphanumeric() || each == '_' || each == ':')).unwrap_or(tree.len());
    let (head, rest) = tree.split_at(name_end);
    if !rest.starts_with('{') || !(head.is_empty() || head.ends_with("::")) {
        return if head.is_empty() { Vec::new() } else { vec![head.trim_end_matches("::").to_string()] };
    }
    members(rest).iter().flat_map(|member| leaves(member)).map(|leaf| format!("{head}{leaf}")).collect()
}

/// The members of a group in braces, which `text` starts with.
fn members(text: &str) -> Vec<&str> {
    let mut found = Vec::new();
    let (mut deep, mut start) = (0_usize, 1);
    for (at, each) in text.char_indices() {
        match each {
            '{' => deep += 1,
            '}' if deep > 1 => deep -= 1,
            '}' | ',' if deep == 1 => {
                found.push(text[start..at].trim());
                start = at + 1;
                if each == '}' {
                    break;
                }
            }
            _ => {}
        }
    }
    found
}

/// All Rust files of `folder` except `lib.rs` and unit tests (`tests.rs`), with their module at the top and how deep they are below the crate's root.
fn sources(folder: &Path) -> io::Result<Vec<(String, usize, PathBuf)>> {
    let mut found = Vec::new();
    let mut folders = vec![(folder.to_path_buf(), Vec::<String>::new())];
    while let Some((folder, names)) = folders.pop() {
        for entry in fs::read_dir(folder)? {
            let path = entry?.path();
            let stem = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
            if stem == "tests" {
                continue;
            }
            let mut below = names.clone();
            if stem != "mod" {
                below.push(stem);
            }
            if path.is_dir() {
                folders.push((path, below));
            } else if path.extension().is_some_and(|kind| kind == "rs") && below != ["lib"] {
                found.push((below[0].clone(), below.len(), path));
            }
        }
    }
    Ok(found)
}

#[test]
fn each_module_imports_only_from_above() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let layers = Layers::parse(&fs::read_to_string(folder.join("lib.rs")).unwrap());
    let files = sources(&folder).unwrap();
    assert!(!layers.order.is_empty() && files.len() >= layers.order.len(), "{} files, table {:?}", files.len(), layers.order);

    let mut wrong = Vec::new();
    for (module, depth, path) in &files {
        let found = layers.violations(module, *depth, &fs::read_to_string(path).unwrap());
        wrong.extend(found.into_iter().map(|each| format!("{}: {each}", path.display())));
    }
    for module in &layers.order {
        if !files.iter().any(|(each, _, _)| each == module) {
            wrong.push(format!("lib.rs: module `{module}` is in the table and has no file"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

const LIB: &str = "
//! | module | what it does |
//! |---|---|
//! | [`error`] | ... |
//! | [`kernel`] | ... |
//! | [`tree`] | ... |
//! | `index` | without a link, as a module behind a feature has it |
pub mod tree;
pub use error::{Error, Result};
pub use index::Index;
";

#[test]
fn the_table_gives_the_order_and_the_root_its_names() {
    let layers = Layers::parse(LIB);
    assert_eq!(layers.order, ["error", "kernel", "tree", "index"]);
    assert_eq!((layers.place("Result"), layers.place("Index"), layers.place("other")), (Some(0), Some(3), None));
}

#[test]
fn imports_from_above_pass() {
    let layers = Layers::parse(LIB);
    let source = "
        use crate::error::Error; use crate::kernel::{Isa, scalar::dot}; use super::node::Node;
        use crate::tree::leaf::Leaf; // crate::index
        /// See [`crate::index::Index`].
        fn f() -> crate::Result<()> { let a: mycrate::index::X; }
        #[cfg(test)]
        mod tests { use crate::index::Index; }";
    assert_eq!(layers.violations("tree", 2, source), Vec::<String>::new());
    assert_eq!(layers.violations("error", 1, "use crate::kernel::Isa;"), Vec::<String>::new());
}

#[test]
fn an_import_from_below_is_a_violation() {
    let layers = Layers::parse(LIB);
    let below = |module, depth, source| layers.violations(module, depth, source).len();
    assert_eq!(below("tree", 1, "use crate::index::Index;"), 1);
    assert_eq!(below("tree", 1, "use crate::Index;"), 1, "also under its name at the root");
    assert_eq!(below("tree", 1, "fn f(index: &crate::index::Index) {}"), 1, "also without `use`");
    assert_eq!(below("tree", 1, "use crate::{error::Error, index::{Index, other::{A, B}}};"), 3, "in a group");
    assert_eq!(below("tree", 1, "use super::index::Index;"), 1, "by way of `super`");
    assert_eq!(below("tree", 2, "use super::super::index::Index;"), 1, "by way of `super` twice");
    assert_eq!(below("error", 1, "use crate::kernel::scalar;"), 1, "only Isa is allowed");
    assert_eq!(below("error", 1, "use crate::kernel::IsaTable;"), 1);
    assert_eq!(below("tree", 1, "use crate::unknown::Thing;"), 1);
    assert_eq!(below("unknown", 1, ""), 1);
}
