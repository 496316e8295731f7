//! Rows of numbers from levels and values.
//!
//! | symbol | what it is |
//! |---|---|
//! | slot | an entry of a column: a value, a null, or what stands for an empty or a null list |
//! | repetition level | of a slot: 0 where a row begins, 1 within one |
//! | definition level | of a slot: `most` for a value, from `element` on for a null among values, just below it for an empty list, lower for none |

use half::f16;
use parquet::column::reader::ColumnReaderImpl;
use parquet::data_type::{DataType, DoubleType, FixedLenByteArray, FixedLenByteArrayType, FloatType, Int32Type, Int64Type};
use parquet::errors::{ParquetError, Result};

use super::super::cells::Cell;
use super::super::flaw::{Flaw, Flaws};
use super::pages::Pages;
use super::schema::ListColumn;

/// Rows that are looked at together when the first with values is searched.
const LOOK: usize = 256;

/// A column of lists of numbers in one row group.
pub struct Lists {
    numbers: Box<dyn Numbers>,
    levels: Levels,
    /// The definition levels of [`ListColumn::element`] and of a value.
    element: i16,
    most: i16,
}

/// The levels of the slots that were read last.
#[derive(Default)]
pub struct Levels {
    definition: Vec<i16>,
    repetition: Vec<i16>,
}

impl Lists {
    /// Reads the pages of a column.
    pub fn new(pages: Pages, column: &ListColumn) -> Self {
        let most = pages.column().max_def_level();
        Self { numbers: numbers(pages, column.cell), levels: Levels::default(), element: column.element, most }
    }

    /// Leaves out rows.
    pub fn skip(&mut self, rows: usize) -> Result<()> {
        self.numbers.skip(rows)
    }

    /// The next rows, of `dim` values each. What is wrong with a row is noted, and its place in `out` left as it is.
    pub fn step(&mut self, rows: usize, dim: usize, out: &mut [f32], flaws: &mut Flaws) -> Result<()> {
        let values = self.read(rows)?;
        let slots = self.levels.repetition.len();
        // As many rows as zeros, all of them where full rows begin, and no slot without a value: then all rows are full.
        let begins = || self.levels.repetition.iter().step_by(dim).all(|&level| level == 0);
        if dim > 0 && slots == rows * dim && values == slots && begins() {
            self.numbers.widen(0, out);
            return Ok(());
        }
        let (mut at, mut value) = (0, 0);
        for row in 0..rows {
            let end = self.end_of_row(at);
            let slots = &self.levels.definition[at..end];
            let present = slots.iter().filter(|&&level| level == self.most).count();
            match self.flaw(slots, present, dim) {
                Some(flaw) => flaws.add(row, flaw),
                None => self.numbers.widen(value, &mut out[row * dim..(row + 1) * dim]),
            }
            (at, value) = (end, value + present);
        }
        Ok(())
    }

    /// The number of values of the first of the next `rows` rows that has any.
    pub fn width(&mut self, rows: usize) -> Result<Option<usize>> {
        let mut left = rows;
        while left > 0 {
            let now = left.min(LOOK);
            self.read(now)?;
            let mut at = 0;
            for _ in 0..now {
                let end = self.end_of_row(at);
                if self.levels.definition[at] >= self.element {
                    return Ok(Some(end - at));
                }
                at = end;
            }
            left -= now;
        }
        Ok(None)
    }

    /// Reads the levels and the values of `rows` rows, and says how many values there are.
    fn read(&mut self, rows: usize) -> Result<usize> {
        let (definition, repetition) = (&mut self.levels.definition, &mut self.levels.repetition);
        definition.clear();
        repetition.clear();
        let (found, values) = self.numbers.read(rows, &mut self.levels)?;
        let Levels { definition, repetition } = &self.levels;
        let zeros = repetition.iter().filter(|&&level| level == 0).count();
        if found != rows || zeros != rows || definition.len() != repetition.len() || repetition.first().is_some_and(|&level| level != 0) {
            return Err(ParquetError::General(format!("{found} rows where there should be {rows}")));
        }
        Ok(values)
    }

    /// Where the row that begins at slot `at` ends.
    fn end_of_row(&self, at: usize) -> usize {
        let repetition = &self.levels.repetition;
        let rest = repetition.get(at + 1..).unwrap_or_default();
        rest.iter().position(|&level| level == 0).map_or(repetition.len(), |within| at + 1 + within)
    }

    /// What is wrong with a row of these definition levels.
    fn flaw(&self, slots: &[i16], present: usize, dim: usize) -> Option<Flaw> {
        match slots.first() {
            Some(&level) if level >= self.element && slots.len() != dim => Some(Flaw::Length(slots.len() as i64)),
            Some(&level) if level >= self.element => (present < dim).then_some(Flaw::NullValue),
            Some(&level) if level + 1 == self.element => Some(Flaw::Empty),
            _ => Some(Flaw::Null),
        }
    }
}

/// A column of numbers of any type.
trait Numbers: Send {
    /// Reads the slots of up to `rows` rows; returns the rows and the values.
    fn read(&mut self, rows: usize, levels: &mut Levels) -> Result<(usize, usize)>;
    /// Leaves out rows.
    fn skip(&mut self, rows: usize) -> Result<()>;
    /// The values that were read, from number `first` on.
    fn widen(&self, first: usize, out: &mut [f32]);
}

struct Typed<T: DataType> {
    reader: ColumnReaderImpl<T>,
    values: Vec<T::T>,
    widen: fn(&[T::T], &mut [f32]),
}

impl<T: DataType> Numbers for Typed<T> {
    fn read(&mut self, rows: usize, levels: &mut Levels) -> Result<(usize, usize)> {
        self.values.clear();
        let Levels { definition, repetition } = levels;
        let (rows, values, _) = self.reader.read_records(rows, Some(definition), Some(repetition), &mut self.values)?;
        Ok((rows, values))
    }

    fn skip(&mut self, rows: usize) -> Result<()> {
        match self.reader.skip_records(rows)? {
            skipped if skipped == rows => Ok(()),
            skipped => Err(ParquetError::General(format!("{skipped} rows where there should be {rows}"))),
        }
    }

    fn widen(&self, first: usize, out: &mut [f32]) {
        (self.widen)(&self.values[first..first + out.len()], out);
    }
}

fn numbers(pages: Pages, cell: Cell) -> Box<dyn Numbers> {
    match cell {
        Cell::F32 => typed::<FloatType>(pages, |values, out| out.copy_from_slice(values)),
        Cell::F64 => typed::<DoubleType>(pages, |values, out| each(values, out, |&x| x as f32)),
        Cell::F16 => typed::<FixedLenByteArrayType>(pages, |values, out| each(values, out, half)),
        Cell::U32 => typed::<Int32Type>(pages, |values, out| each(values, out, |&x| x.cast_unsigned() as f32)),
        Cell::U64 => typed::<Int64Type>(pages, |values, out| each(values, out, |&x| x.cast_unsigned() as f32)),
        Cell::I64 => typed::<Int64Type>(pages, |values, out| each(values, out, |&x| x as f32)),
        // Parquet keeps the smaller ones in four bytes.
        Cell::I8 | Cell::I16 | Cell::I32 | Cell::U8 | Cell::U16 => {
            typed::<Int32Type>(pages, |values, out| each(values, out, |&x| x as f32))
        }
    }
}

fn typed<T: DataType>(pages: Pages, widen: fn(&[T::T], &mut [f32])) -> Box<dyn Numbers> {
    Box::new(Typed::<T> { reader: ColumnReaderImpl::new(pages.column(), Box::new(pages)), values: Vec::new(), widen })
}

fn each<T>(values: &[T], out: &mut [f32], number: impl Fn(&T) -> f32) {
    values.iter().zip(out).for_each(|(value, x)| *x = number(value));
}

fn half(value: &FixedLenByteArray) -> f32 {
    // The column's type says two bytes; another length could only come of damage, and NaN is refused later.
    value.data().try_into().map_or(f32::NAN, |bytes| f16::from_le_bytes(bytes).to_f32())
}
