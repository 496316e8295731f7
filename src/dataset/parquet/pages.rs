//! Pages of a column, checked: what a damaged header or page says is held against what the footer says and against the bytes there are,
//! before it is believed and memory is taken for it.

use std::io::{self, BufRead, BufReader, Read};
use std::sync::Arc;

use bytes::Bytes;
use parquet::basic::{Encoding, Type as Physical};
use parquet::column::page::{Page, PageMetadata, PageReader};
use parquet::errors::{ParquetError, Result};
use parquet::file::metadata::RowGroupMetaData;
use parquet::file::reader::{ChunkReader, Length};
use parquet::file::serialized_reader::SerializedPageReader;
use parquet::schema::types::ColumnDescPtr;

use super::super::file::DataFile;

/// Bytes that are read at once for a page's header; most are a few dozen bytes long.
const HEADER: usize = 512;

/// A file as the `parquet` crate reads it.
pub struct Chunk {
    file: Arc<DataFile>,
    /// The most bytes that a page may have when it is decompressed.
    largest_page: u64,
}

impl Chunk {
    /// For the footer.
    pub fn whole(file: Arc<DataFile>) -> Self {
        Self { file, largest_page: u64::MAX }
    }
}

impl Length for Chunk {
    fn len(&self) -> u64 {
        self.file.len()
    }
}

impl ChunkReader for Chunk {
    type T = BufReader<Place>;

    /// Called for the header of a page, which is looked at here first.
    fn get_read(&self, start: u64) -> Result<Self::T> {
        let mut read = BufReader::with_capacity(HEADER, Place { file: self.file.clone(), offset: start });
        if self.largest_page < u64::MAX {
            let size = page_size(read.fill_buf()?);
            if size.is_some_and(|size| size > self.largest_page) {
                return Err(ParquetError::General("a page says that it is larger than its whole column".into()));
            }
        }
        Ok(read)
    }

    fn get_bytes(&self, start: u64, length: usize) -> Result<Bytes> {
        if start.checked_add(length as u64).is_none_or(|end| end > self.file.len()) {
            return Err(ParquetError::EOF(format!("{length} bytes at {start} are not there")));
        }
        let mut bytes = vec![0; length];
        self.file.read_exact_at(start, &mut bytes)?;
        Ok(bytes.into())
    }
}

/// A place in a file to read from.
pub struct Place {
    file: Arc<DataFile>,
    offset: u64,
}

impl Read for Place {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let read = self.file.read_at(self.offset, out)?;
        self.offset += read as u64;
        Ok(read)
    }
}

/// The decompressed size that a page's header begins with: field 1 is the type and field 2 the size, both int32 in Thrift's compact
/// protocol, that is a byte 0x15 and a zigzag varint each.
fn page_size(header: &[u8]) -> Option<u64> {
    let (_, rest) = compact_int(header)?;
    let (size, _) = compact_int(rest)?;
    u64::try_from(size).ok()
}

fn compact_int(bytes: &[u8]) -> Option<(i64, &[u8])> {
    let bytes = bytes.strip_prefix(&[0x15])?;
    let mut value = 0u64;
    for (i, byte) in bytes.iter().take(5).enumerate() {
        value |= u64::from(byte & 0x7f) << (7 * i);
        if byte & 0x80 == 0 {
            return Some(((value >> 1) as i64 ^ -((value & 1) as i64), &bytes[i + 1..]));
        }
    }
    None
}

/// The pages of a column in one row group.
pub struct Pages {
    inner: SerializedPageReader<Chunk>,
    column: ColumnDescPtr,
    /// Values, nulls and empty lists that pages may still have.
    left: u64,
    dictionary: bool,
}

impl Pages {
    /// Of the column `leaf` of a row group.
    pub fn new(file: &Arc<DataFile>, group: &RowGroupMetaData, leaf: usize) -> Result<Self> {
        let fault = |what: &str| Err(ParquetError::General(what.into()));
        let Some(chunk) = group.columns().get(leaf) else { return fault("a row group without one of its columns") };
        if chunk.file_path().is_some() {
            return fault("a column that is in another file");
        }
        let start = chunk.dictionary_page_offset().unwrap_or_else(|| chunk.data_page_offset());
        let end = start.checked_add(chunk.compressed_size()).and_then(|end| u64::try_from(end).ok());
        if start < 0 || chunk.compressed_size() < 0 || end.is_none_or(|end| end > file.len()) {
            return fault("a column that lies outside of the file");
        }
        let (Ok(left), Ok(largest_page)) = (u64::try_from(chunk.num_values()), u64::try_from(chunk.uncompressed_size())) else {
            return fault("a column of negative size");
        };
        let rows = usize::try_from(group.num_rows()).unwrap_or(0);
        if left < rows as u64 {
            return fault("a column with fewer values than rows");
        }
        // Some writers leave the headers out of the sum.
        let reader = Chunk { file: file.clone(), largest_page: largest_page.saturating_add(1 << 16) };
        let inner = SerializedPageReader::new(Arc::new(reader), chunk, rows, None)?;
        Ok(Self { inner, column: chunk.column_descr_ptr(), left, dictionary: false })
    }

    /// The column's type.
    pub fn column(&self) -> ColumnDescPtr {
        self.column.clone()
    }

    fn check(&mut self, page: &Page) -> Result<()> {
        let fault = |what: &str| Err(ParquetError::General(what.into()));
        if let Page::DictionaryPage { buf, num_values, .. } = page {
            if self.dictionary {
                return fault("two dictionaries in one column");
            }
            self.dictionary = true;
            let bytes = match self.column.physical_type() {
                Physical::FIXED_LEN_BYTE_ARRAY => 1,
                Physical::INT32 | Physical::FLOAT => 4,
                _ => 8,
            };
            return if *num_values as usize > buf.len() / bytes { fault("a dictionary that is too short") } else { Ok(()) };
        }
        match self.left.checked_sub(u64::from(page.num_values())) {
            Some(left) => self.left = left,
            None => return fault("pages with more values than their column"),
        }
        #[allow(deprecated)] // Old files have it.
        let level = |encoding: Encoding| encoding == Encoding::RLE || encoding == Encoding::BIT_PACKED;
        match page {
            Page::DataPage { def_level_encoding, rep_level_encoding, .. }
                if !(level(*def_level_encoding) && level(*rep_level_encoding)) =>
            {
                return fault("levels in an unknown encoding");
            }
            Page::DataPageV2 { buf, def_levels_byte_len, rep_levels_byte_len, .. } => {
                let levels = u64::from(*def_levels_byte_len) + u64::from(*rep_levels_byte_len);
                if levels > buf.len() as u64 {
                    return fault("levels that are longer than their page");
                }
            }
            _ => {}
        }
        let coded = matches!(page.encoding(), Encoding::PLAIN_DICTIONARY | Encoding::RLE_DICTIONARY);
        if coded && !self.dictionary { fault("a page without its dictionary") } else { Ok(()) }
    }
}

impl Iterator for Pages {
    type Item = Result<Page>;

    fn next(&mut self) -> Option<Self::Item> {
        self.get_next_page().transpose()
    }
}

impl PageReader for Pages {
    fn get_next_page(&mut self) -> Result<Option<Page>> {
        let page = self.inner.get_next_page()?;
        page.as_ref().map_or(Ok(()), |page| self.check(page))?;
        Ok(page)
    }

    fn peek_next_page(&mut self) -> Result<Option<PageMetadata>> {
        self.inner.peek_next_page()
    }

    fn skip_next_page(&mut self) -> Result<()> {
        self.inner.skip_next_page()
    }

    fn at_record_boundary(&mut self) -> Result<bool> {
        self.inner.at_record_boundary()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_size_of_a_page_is_read_from_its_header() {
        // type 0; size 3, 300, 2^31 - 1.
        assert_eq!(page_size(&[0x15, 0x00, 0x15, 0x06, 0x15]), Some(3));
        assert_eq!(page_size(&[0x15, 0x04, 0x15, 0xd8, 0x04]), Some(300));
        assert_eq!(page_size(&[0x15, 0x00, 0x15, 0xfe, 0xff, 0xff, 0xff, 0x0f]), Some((1 << 31) - 1));
        assert_eq!(page_size(&[0x15, 0x00, 0x15, 0x05]), None, "negative: left to the reader of headers");
        for cut in 0..4 {
            assert_eq!(page_size(&[0x15, 0x00, 0x15, 0x06][..cut]), None);
        }
    }
}
