//! Ids from a column of integers.

use parquet::column::reader::ColumnReaderImpl;
use parquet::data_type::{DataType, Int32Type, Int64Type};
use parquet::errors::{ParquetError, Result};

use super::super::cells::Cell;
use super::super::flaw::{Flaw, Flaws};
use super::pages::Pages;
use super::schema::IdColumn;

/// A column of ids in one row group.
pub struct Keys {
    integers: Integers,
    signed: bool,
    /// The definition level of a value; 0 where nulls can't be.
    most: i16,
    definition: Vec<i16>,
}

enum Integers {
    Four(Column<Int32Type>),
    Eight(Column<Int64Type>),
}

struct Column<T: DataType> {
    reader: ColumnReaderImpl<T>,
    values: Vec<T::T>,
}

impl Keys {
    /// Reads the pages of a column.
    pub fn new(pages: Pages, column: &IdColumn) -> Self {
        let most = pages.column().max_def_level();
        let (integers, signed) = match column.cell {
            Cell::I64 => (Integers::Eight(Column::new(pages)), true),
            Cell::U64 => (Integers::Eight(Column::new(pages)), false),
            Cell::U32 => (Integers::Four(Column::new(pages)), false),
            _ => (Integers::Four(Column::new(pages)), true),
        };
        Self { integers, signed, most, definition: Vec::new() }
    }

    /// Leaves out rows.
    pub fn skip(&mut self, rows: usize) -> Result<()> {
        same(
            rows,
            match &mut self.integers {
                Integers::Four(column) => column.reader.skip_records(rows)?,
                Integers::Eight(column) => column.reader.skip_records(rows)?,
            },
        )
    }

    /// The next ids, as many as `ids` holds. What is wrong with one is noted.
    pub fn step(&mut self, ids: &mut [i64], flaws: &mut Flaws) -> Result<()> {
        self.definition.clear();
        let signed = self.signed;
        match &mut self.integers {
            Integers::Four(column) => {
                column.read(ids.len(), self.most, &mut self.definition)?;
                let number = |&x: &i32| if signed { i128::from(x) } else { i128::from(x.cast_unsigned()) };
                place(&self.definition, self.most, column.values.iter().map(number), ids, flaws)
            }
            Integers::Eight(column) => {
                column.read(ids.len(), self.most, &mut self.definition)?;
                let number = |&x: &i64| if signed { i128::from(x) } else { i128::from(x.cast_unsigned()) };
                place(&self.definition, self.most, column.values.iter().map(number), ids, flaws)
            }
        }
    }
}

impl<T: DataType> Column<T> {
    fn new(pages: Pages) -> Self {
        Self { reader: ColumnReaderImpl::new(pages.column(), Box::new(pages)), values: Vec::new() }
    }

    fn read(&mut self, rows: usize, most: i16, definition: &mut Vec<i16>) -> Result<()> {
        self.values.clear();
        let (found, _, _) = self.reader.read_records(rows, (most > 0).then_some(definition), None, &mut self.values)?;
        same(rows, found)
    }
}

/// Puts each number at its row, where a row has one.
fn place(definition: &[i16], most: i16, mut numbers: impl Iterator<Item = i128>, ids: &mut [i64], flaws: &mut Flaws) -> Result<()> {
    for (row, id) in ids.iter_mut().enumerate() {
        if most > 0 && definition.get(row) != Some(&most) {
            flaws.add(row, Flaw::NullId);
            continue;
        }
        let number = numbers.next().ok_or_else(|| ParquetError::General("fewer ids than rows".into()))?;
        match i64::try_from(number) {
            Ok(number) if number >= 0 => *id = number,
            _ => flaws.add(row, Flaw::Id(number)),
        }
    }
    Ok(())
}

fn same(rows: usize, found: usize) -> Result<()> {
    if rows == found { Ok(()) } else { Err(ParquetError::General(format!("{found} ids where there should be {rows}"))) }
}
