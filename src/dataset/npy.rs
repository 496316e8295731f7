//! `.npy`: numpy's own format, versions 1 to 3; two dimensions, any real numbers, C or Fortran order, either order of bytes.
//!
//! The header is a Python dict in text: `{'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }`. It is read by a parser that knows
//! no more than that: what numpy writes is of this form, and anything else is refused.

use std::path::{Path, PathBuf};

use super::cells::Cell;
use super::file::DataFile;
use crate::error::Result;
use crate::metric::MAX_DIM;

/// What a file begins with.
const MAGIC: &[u8; 6] = b"\x93NUMPY";

/// The longest header that is read; numpy's are a few hundred bytes.
const MAX_HEADER: usize = 1 << 16;

/// What is known of a file before its rows are read.
#[derive(Debug, Clone)]
pub struct Npy {
    path: PathBuf,
    len: u64,
    /// Where the numbers begin.
    offset: u64,
    layout: Layout,
}

/// What a header says.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Layout {
    cell: Cell,
    big_endian: bool,
    fortran: bool,
    rows: u64,
    dim: usize,
}

impl Npy {
    /// Reads the header and holds it against the file's length.
    pub fn open(path: &Path) -> Result<Self> {
        let file = DataFile::open(path)?;
        let (text, offset) = header(&file)?;
        let layout = Layout::parse(&text).map_err(|problem| file.fault(problem))?;
        let values = layout.rows.checked_mul(layout.dim as u64);
        let end = values.and_then(|values| values.checked_mul(layout.cell.bytes() as u64)?.checked_add(offset));
        if end.is_none_or(|end| end > file.len()) {
            let (len, rows, dim) = (file.len(), layout.rows, layout.dim);
            return Err(file.fault(format!("{len} bytes are too few for the shape ({rows}, {dim}) in its header; it is cut off")));
        }
        Ok(Self { path: path.to_path_buf(), len: file.len(), offset, layout })
    }

    /// Rows in the file.
    pub fn rows(&self) -> u64 {
        self.layout.rows
    }

    /// Values a row.
    pub fn dim(&self) -> usize {
        self.layout.dim
    }

    /// Whether a column's values lie together, so that many rows should be read at once.
    pub fn by_columns(&self) -> bool {
        self.layout.fortran
    }

    /// A reader of the rows from `first` on.
    pub fn reader(&self, first: u64) -> Result<Reader> {
        let file = DataFile::reopen(&self.path, self.len)?;
        Ok(Reader { file, about: self.clone(), next: first, bytes: Vec::new(), column: Vec::new() })
    }
}

/// Reads rows in order.
#[derive(Debug)]
pub struct Reader {
    file: DataFile,
    about: Npy,
    next: u64,
    bytes: Vec<u8>,
    column: Vec<f32>,
}

impl Reader {
    /// The next rows, as many as `out` holds.
    pub fn step(&mut self, rows: usize, out: &mut [f32]) -> Result<()> {
        if self.about.layout.fortran {
            self.columns(rows, out)?
        } else {
            self.rows(out)?
        }
        self.next += rows as u64;
        Ok(())
    }

    fn rows(&mut self, out: &mut [f32]) -> Result<()> {
        let Layout { cell, big_endian, dim, .. } = self.about.layout;
        let start = self.about.offset + self.next * (dim * cell.bytes()) as u64;
        if cell == Cell::F32 && big_endian == cfg!(target_endian = "big") {
            return self.file.read(start, bytemuck::cast_slice_mut(out));
        }
        self.bytes.resize(out.len() * cell.bytes(), 0);
        self.file.read(start, &mut self.bytes)?;
        cell.widen(big_endian, &self.bytes, out);
        Ok(())
    }

    fn columns(&mut self, rows: usize, out: &mut [f32]) -> Result<()> {
        let Layout { cell, big_endian, dim, rows: all, .. } = self.about.layout;
        self.bytes.resize(rows * cell.bytes(), 0);
        self.column.resize(rows, 0.0);
        for j in 0..dim {
            let place = (j as u64 * all + self.next) * cell.bytes() as u64;
            self.file.read(self.about.offset + place, &mut self.bytes)?;
            cell.widen(big_endian, &self.bytes, &mut self.column);
            out[j..].iter_mut().step_by(dim).zip(&self.column).for_each(|(x, value)| *x = *value);
        }
        Ok(())
    }
}

/// The header's text, and where the numbers begin.
fn header(file: &DataFile) -> Result<(String, u64)> {
    let mut start = [0; 12];
    let known = start.len().min(usize::try_from(file.len()).unwrap_or(usize::MAX));
    file.read(0, &mut start[..known])?;
    if known < 10 || !start.starts_with(MAGIC) {
        return Err(file.fault("not a .npy file: it does not begin as one; write it with numpy.save"));
    }
    let (len, begin) = match start[6] {
        1 => (usize::from(u16::from_le_bytes([start[8], start[9]])), 10),
        2 | 3 => (usize::try_from(u32::from_le_bytes([start[8], start[9], start[10], start[11]])).unwrap_or(usize::MAX), 12),
        version => return Err(file.fault(format!("version {version} of the .npy format; versions 1 to 3 are known"))),
    };
    if len > MAX_HEADER {
        return Err(file.fault(format!("a .npy header of {len} bytes; at most {MAX_HEADER} are read")));
    }
    let mut text = vec![0; len];
    file.read(begin, &mut text)?;
    let text = String::from_utf8(text).map_err(|_| file.fault("its .npy header is no text"))?;
    Ok((text, begin + len as u64))
}

impl Layout {
    fn parse(header: &str) -> std::result::Result<Self, String> {
        let odd = || format!("its .npy header can't be understood: {:.200}", header.trim_end());
        let descr = value(header, "descr").ok_or_else(odd)?;
        let Some(descr) = descr.strip_prefix(['\'', '"']).and_then(|rest| rest.split(['\'', '"']).next()) else {
            return Err("an array of structures; expected an array of numbers".into());
        };
        let (cell, big_endian) = cell(descr).ok_or_else(|| {
            format!("an array of dtype {descr:?}; expected float16, float32, float64 or integers (save array.astype(numpy.float32))")
        })?;
        let fortran = value(header, "fortran_order").ok_or_else(odd)?;
        let fortran = if fortran.starts_with("True") { true } else { fortran.strip_prefix("False").map(|_| false).ok_or_else(odd)? };
        let shape = value(header, "shape").and_then(|rest| rest.strip_prefix('(')?.split(')').next()).ok_or_else(odd)?;
        let parts = shape.split(',').map(str::trim).filter(|part| !part.is_empty());
        let sizes: Vec<u64> =
            parts.map(|part| part.trim_end_matches('L').parse().map_err(|_| odd())).collect::<std::result::Result<_, _>>()?;
        let [rows, dim] = sizes[..] else {
            return Err(format!("an array of shape ({shape}); expected two dimensions, (rows, values)"));
        };
        let dim = usize::try_from(dim).ok().filter(|dim| (1..=MAX_DIM).contains(dim));
        let dim = dim.ok_or_else(|| format!("an array of shape ({shape}); expected rows of 1 to {MAX_DIM} values"))?;
        Ok(Self { cell, big_endian, fortran, rows, dim })
    }
}

/// What follows a key of the dict.
fn value<'a>(header: &'a str, key: &str) -> Option<&'a str> {
    let named = |quote: char| header.split_once(&format!("{quote}{key}{quote}"));
    let (_, rest) = named('\'').or_else(|| named('"'))?;
    rest.trim_start().strip_prefix(':').map(str::trim_start)
}

/// The type of numbers and whether they are big-endian, from numpy's name (`<f4`).
fn cell(descr: &str) -> Option<(Cell, bool)> {
    let cells = [
        ("f2", Cell::F16),
        ("f4", Cell::F32),
        ("f8", Cell::F64),
        ("i1", Cell::I8),
        ("i2", Cell::I16),
        ("i4", Cell::I32),
        ("i8", Cell::I64),
        ("u1", Cell::U8),
        ("u2", Cell::U16),
        ("u4", Cell::U32),
        ("u8", Cell::U64),
    ];
    let name = descr.strip_prefix(['<', '>', '|', '='])?;
    let cell = cells.iter().find(|(each, _)| *each == name)?.1;
    Some((cell, descr.starts_with('>')))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(header: &str) -> std::result::Result<Layout, String> {
        Layout::parse(header)
    }

    #[test]
    fn headers_as_numpy_writes_them() {
        let layout = |cell, big_endian, fortran, rows, dim| Ok(Layout { cell, big_endian, fortran, rows, dim });
        let header = "{'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }   \n";
        assert_eq!(parse(header), layout(Cell::F32, false, false, 3, 4));
        let header = "{'descr': '>f8', 'fortran_order': True, 'shape': (0, 65535), }\n";
        assert_eq!(parse(header), layout(Cell::F64, true, true, 0, 65535));
        let header = "{\"shape\":(3L,4L),\"fortran_order\":False,\"descr\":\"|u1\"}";
        assert_eq!(parse(header), layout(Cell::U8, false, false, 3, 4));
    }

    #[test]
    fn headers_of_something_else() {
        let header = |descr: &str, order: &str, shape: &str| format!("{{'descr': {descr}, 'fortran_order': {order}, 'shape': {shape}, }}");
        for (descr, order, shape, problem) in [
            ("'<f4'", "False", "(3,)", "shape (3,); expected two dimensions"),
            ("'<f4'", "False", "()", "expected two dimensions"),
            ("'<f4'", "False", "(3, 4, 5)", "expected two dimensions"),
            ("'<f4'", "False", "(3, 0)", "1 to 65535 values"),
            ("'<f4'", "False", "(3, 65536)", "1 to 65535 values"),
            ("'<c8'", "False", "(3, 4)", "dtype \"<c8\""),
            ("'|O'", "False", "(3, 4)", "dtype \"|O\""),
            ("'|b1'", "False", "(3, 4)", "dtype \"|b1\""),
            ("'<U5'", "False", "(3, 4)", "dtype \"<U5\""),
            ("[('x', '<f4')]", "False", "(3, 4)", "structures"),
            ("'<f4'", "Maybe", "(3, 4)", "can't be understood"),
            ("'<f4'", "False", "(3, -4)", "can't be understood"),
            ("'<f4'", "False", "3, 4", "can't be understood"),
            ("'<f4'", "False", "(99999999999999999999, 4)", "can't be understood"),
        ] {
            let found = parse(&header(descr, order, shape)).unwrap_err();
            assert!(found.contains(problem), "{found}");
        }
        for header in ["", "{", "{'descr'", "{'descr': '<f4'}", "{'shape': (3, 4)}"] {
            assert!(parse(header).is_err());
        }
    }

    #[test]
    fn damage_anywhere_gives_an_error_or_other_numbers() {
        let folder = tempfile::TempDir::new().unwrap();
        let path = folder.path().join("a.npy");
        let header = format!("{:<117}\n", "{'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }");
        let mut bytes = [MAGIC.as_slice(), &[1, 0], &(header.len() as u16).to_le_bytes(), header.as_bytes()].concat();
        bytes.extend([0; 48]);
        std::fs::write(&path, &bytes).unwrap();
        assert_eq!(Npy::open(&path).unwrap().rows(), 3);
        for cut in 0..bytes.len() {
            std::fs::write(&path, &bytes[..cut]).unwrap();
            assert!(Npy::open(&path).is_err(), "cut at {cut}");
        }
        for place in 0..bytes.len() {
            for flip in [0x01, 0x10, 0x80, 0xff] {
                let mut damaged = bytes.clone();
                damaged[place] ^= flip;
                std::fs::write(&path, &damaged).unwrap();
                let Ok(found) = Npy::open(&path) else { continue };
                let mut out = vec![0.0; found.rows() as usize * found.dim()];
                assert!(found.reader(0).and_then(|mut reader| reader.step(found.rows() as usize, &mut out)).is_ok());
            }
        }
    }
}
