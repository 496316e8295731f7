//! Which columns there are, and which of them to read.

use std::path::Path;

use parquet::basic::{ConvertedType, LogicalType, Repetition, Type as Physical};
use parquet::schema::types::{ColumnDescriptor, SchemaDescriptor, Type};

use super::super::cells::Cell;
use crate::error::{Error, Result};

/// A column of lists of numbers.
#[derive(Debug, Clone)]
pub struct ListColumn {
    /// Its number among the columns that hold values.
    pub leaf: usize,
    /// The type of its numbers.
    pub cell: Cell,
    /// The least definition level of an element, null or not; below it a list is empty or null.
    pub element: i16,
}

/// A column of integers.
#[derive(Debug, Clone)]
pub struct IdColumn {
    /// Its number among the columns that hold values.
    pub leaf: usize,
    /// The type of its numbers.
    pub cell: Cell,
}

/// What to read of a file.
#[derive(Debug, Clone)]
pub struct Choice {
    /// The name of the column of vectors.
    pub column: String,
    /// The vectors.
    pub vectors: ListColumn,
    /// The ids, if a column was named for them.
    pub ids: Option<IdColumn>,
}

impl Choice {
    /// Chooses by name, or the only column that holds lists of numbers.
    pub fn new(path: &Path, schema: &SchemaDescriptor, column: Option<&str>, id_column: Option<&str>) -> Result<Self> {
        let columns: Vec<&Type> = schema.root_schema().get_fields().iter().map(AsRef::as_ref).collect();
        let lists: Vec<(&str, ListColumn)> = (0..schema.num_columns()).filter_map(|leaf| list(schema, leaf)).collect();
        let chosen = match column {
            Some(name) => lists.iter().find(|(each, _)| *each == name),
            None if lists.len() == 1 => lists.first(),
            None => None,
        };
        let (name, vectors) = chosen.cloned().ok_or_else(|| refused(path, &columns, &lists, column))?;
        let ids = id_column.map(|name| ids(path, schema, &columns, name)).transpose()?;
        Ok(Self { column: name.to_string(), vectors, ids })
    }
}

/// Why no column of vectors could be chosen.
fn refused(path: &Path, columns: &[&Type], lists: &[(&str, ListColumn)], column: Option<&str>) -> Error {
    let file = path.display();
    let all = || listed(columns);
    match column {
        Some(name) => match columns.iter().find(|each| each.name() == name) {
            Some(found) => {
                Error::invalid("column", format!("a column of lists of numbers in {file}, which has {}", all()), described(found))
            }
            None => Error::invalid("column", format!("a column of {file}, which has {}", all()), format!("{name:?}")),
        },
        None if lists.is_empty() => {
            Error::invalid("column", "a file with a column of lists of numbers", format!("{file} with the columns {}", all()))
        }
        None => {
            let candidates: Vec<&Type> =
                columns.iter().filter(|each| lists.iter().any(|(name, _)| *name == each.name())).copied().collect();
            let expected = format!("the name of one of the columns of lists of numbers in {file}, {}", listed(&candidates));
            Error::invalid("column", expected, "None")
        }
    }
}

/// The column of ids.
fn ids(path: &Path, schema: &SchemaDescriptor, columns: &[&Type], name: &str) -> Result<IdColumn> {
    let file = path.display();
    let Some(found) = columns.iter().find(|each| each.name() == name) else {
        let expected = format!("a column of {file}, which has {}", listed(columns));
        return Err(Error::invalid("id_column", expected, format!("{name:?}")));
    };
    let leaf = (0..schema.num_columns()).find(|&leaf| schema.get_column_root(leaf).name() == name && found.is_primitive());
    let whole = |leaf: &usize| integer(&schema.column(*leaf)).filter(|_| schema.column(*leaf).max_rep_level() == 0);
    match leaf.and_then(|leaf| Some((leaf, whole(&leaf)?))) {
        Some((leaf, cell)) => Ok(IdColumn { leaf, cell }),
        None => Err(Error::WrongType {
            argument: "id_column",
            expected: "a column of integers (leave it out to number the rows, and keep a list of what the numbers stand for)".into(),
            given: format!("{} in {file}", described(found)),
        }),
    }
}

/// The column of lists of numbers that a leaf belongs to, if it does: one list deep, and nothing but the number in it.
fn list(schema: &SchemaDescriptor, leaf: usize) -> Option<(&str, ListColumn)> {
    let column = schema.column(leaf);
    let cell = number(&column)?;
    let (mut node, mut element) = (schema.get_column_root(leaf), 0);
    // From the outside in: the column (LIST), the repeated group, the element. Older files do without the one or the other.
    for depth in 0..2 {
        let repetition = node.get_basic_info().repetition();
        element += i16::from(repetition != Repetition::REQUIRED);
        if repetition == Repetition::REPEATED {
            let alone = node.is_primitive() || (node.get_fields().len() == 1 && node.get_fields()[0].is_primitive());
            let fits = alone && column.max_rep_level() == 1;
            return fits.then(|| (schema.get_column_root(leaf).name(), ListColumn { leaf, cell, element }));
        }
        if depth == 1 || node.is_primitive() || node.get_fields().len() != 1 {
            return None;
        }
        node = &node.get_fields()[0];
    }
    None
}

/// The type of numbers of a column, if it holds numbers.
fn number(column: &ColumnDescriptor) -> Option<Cell> {
    match column.physical_type() {
        Physical::FLOAT => Some(Cell::F32),
        Physical::DOUBLE => Some(Cell::F64),
        Physical::FIXED_LEN_BYTE_ARRAY if column.type_length() == 2 && column.logical_type_ref() == Some(&LogicalType::Float16) => {
            Some(Cell::F16)
        }
        _ => integer(column),
    }
}

/// The type of integers of a column, if it holds integers; dates, times and decimals are something else.
fn integer(column: &ColumnDescriptor) -> Option<Cell> {
    let signed = match (column.logical_type_ref(), column.converted_type()) {
        (Some(LogicalType::Integer(kind)), _) => kind.is_signed,
        (Some(_), _) => return None,
        (None, ConvertedType::NONE | ConvertedType::INT_8 | ConvertedType::INT_16 | ConvertedType::INT_32 | ConvertedType::INT_64) => true,
        (None, ConvertedType::UINT_8 | ConvertedType::UINT_16 | ConvertedType::UINT_32 | ConvertedType::UINT_64) => false,
        _ => return None,
    };
    match (column.physical_type(), signed) {
        (Physical::INT32, true) => Some(Cell::I32),
        (Physical::INT32, false) => Some(Cell::U32),
        (Physical::INT64, true) => Some(Cell::I64),
        (Physical::INT64, false) => Some(Cell::U64),
        _ => None,
    }
}

/// Columns with their types, for a message; of many the first.
fn listed(columns: &[&Type]) -> String {
    const MOST: usize = 20;
    let mut names: Vec<String> = columns.iter().take(MOST).map(|column| described(column)).collect();
    if columns.len() > MOST {
        names.push(format!("and {} more", columns.len() - MOST));
    }
    if names.is_empty() { "none".into() } else { names.join(", ") }
}

/// A column's name and type, for a message.
fn described(column: &Type) -> String {
    format!("{:?} ({})", column.name(), kind(column))
}

/// A type in plain words.
fn kind(node: &Type) -> String {
    let about = node.get_basic_info();
    let own = if node.is_primitive() { primitive(node) } else { group(node) };
    if about.has_repetition() && about.repetition() == Repetition::REPEATED { format!("list of {own}") } else { own }
}

fn group(node: &Type) -> String {
    let about = node.get_basic_info();
    match (about.logical_type_ref(), about.converted_type(), node.get_fields()) {
        (Some(LogicalType::List), _, [inner]) | (None, ConvertedType::LIST, [inner]) => match inner.is_group() {
            true => inner.get_fields().first().map_or_else(|| "list".into(), |element| format!("list of {}", kind(element))),
            false => kind(inner),
        },
        (Some(LogicalType::Map), ..) | (None, ConvertedType::MAP, _) => "map".into(),
        _ => "struct".into(),
    }
}

fn primitive(node: &Type) -> String {
    let about = node.get_basic_info();
    let unsigned = |bits: u8, unsigned: bool| format!("{}int{bits}", if unsigned { "u" } else { "" });
    match (about.logical_type_ref(), about.converted_type(), node.get_physical_type()) {
        (Some(LogicalType::Integer(kind)), ..) => unsigned(kind.bit_width.unsigned_abs(), !kind.is_signed),
        (Some(LogicalType::Float16), ..) => "float16".into(),
        (Some(LogicalType::String), ..) | (None, ConvertedType::UTF8, _) => "string".into(),
        (Some(LogicalType::Decimal(_)), ..) | (None, ConvertedType::DECIMAL, _) => "decimal".into(),
        (Some(LogicalType::Date), ..) | (None, ConvertedType::DATE, _) => "date".into(),
        (Some(LogicalType::Timestamp(_)), ..) => "timestamp".into(),
        (Some(LogicalType::Time(_)), ..) => "time".into(),
        (Some(LogicalType::Uuid), ..) => "uuid".into(),
        (Some(LogicalType::Json), ..) => "json".into(),
        (Some(LogicalType::Unknown), ..) => "null".into(),
        (_, _, Physical::BOOLEAN) => "bool".into(),
        (_, _, Physical::INT32) => "int32".into(),
        (_, _, Physical::INT64) => "int64".into(),
        (_, _, Physical::INT96) => "timestamp".into(),
        (_, _, Physical::FLOAT) => "float32".into(),
        (_, _, Physical::DOUBLE) => "float64".into(),
        (_, _, Physical::BYTE_ARRAY | Physical::FIXED_LEN_BYTE_ARRAY) => "binary".into(),
    }
}
