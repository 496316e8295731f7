use std::path::{Path, PathBuf};
use std::sync::Arc;

use parquet::basic::{Compression, Encoding};
use parquet::data_type::{FloatType, Int64Type};
use parquet::file::metadata::ParquetMetaDataReader;
use parquet::file::properties::{WriterProperties, WriterPropertiesBuilder, WriterVersion};
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::parser::parse_message_type;
use parquet::schema::types::ColumnPath;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;
use tempfile::TempDir;

use super::*;

/// A row as a file may hold it: null, or numbers among which may be nulls.
type Row = Option<Vec<Option<f32>>>;

const SCHEMA: &str = "message rows {
    optional int64 key;
    optional group vector (LIST) { repeated group list { optional float element; } }
    optional binary note (STRING);
}";

fn full(rows: usize, dim: usize, seed: u64) -> Vec<Row> {
    let mut rng = Pcg64::seed_from_u64(seed);
    (0..rows).map(|_| Some((0..dim).map(|_| Some((rng.random_range(-50..50) as f32) / 8.0)).collect())).collect()
}

fn flat(rows: &[Row]) -> Vec<f32> {
    rows.iter().flatten().flatten().map(|x| x.unwrap()).collect()
}

/// Writes rows with the keys 1000, 1001 and so on; `group` rows a row group.
fn write(path: &Path, rows: &[Row], group: usize, properties: WriterPropertiesBuilder) {
    write_keys(path, rows, 1000, group, properties);
}

/// Writes rows with the keys from `key` on.
fn write_keys(path: &Path, rows: &[Row], mut key: i64, group: usize, properties: WriterPropertiesBuilder) {
    let schema = Arc::new(parse_message_type(SCHEMA).unwrap());
    let file = std::fs::File::create(path).unwrap();
    let mut writer = SerializedFileWriter::new(file, schema, Arc::new(properties.build())).unwrap();
    for rows in rows.chunks(group) {
        let mut columns = writer.next_row_group().unwrap();
        let mut column = columns.next_column().unwrap().unwrap();
        let keys: Vec<i64> = (key..key + rows.len() as i64).collect();
        column.typed::<Int64Type>().write_batch(&keys, Some(&vec![1; rows.len()]), None).unwrap();
        column.close().unwrap();
        key += rows.len() as i64;

        let (mut definition, mut repetition, mut values) = (Vec::new(), Vec::new(), Vec::new());
        for row in rows {
            match row {
                None => definition.push(0),
                Some(row) if row.is_empty() => definition.push(1),
                Some(row) => {
                    definition.extend(row.iter().map(|x| if x.is_some() { 3 } else { 2 }));
                    values.extend(row.iter().flatten());
                    repetition.push(0);
                    repetition.resize(definition.len(), 1);
                    continue;
                }
            }
            repetition.push(0);
        }
        let mut column = columns.next_column().unwrap().unwrap();
        column.typed::<FloatType>().write_batch(&values, Some(&definition), Some(&repetition)).unwrap();
        column.close().unwrap();

        let mut column = columns.next_column().unwrap().unwrap();
        column.typed::<parquet::data_type::ByteArrayType>().write_batch(&[], Some(&vec![0; rows.len()]), None).unwrap();
        column.close().unwrap();
        columns.close().unwrap();
    }
    writer.close().unwrap();
}

fn small_pages() -> WriterPropertiesBuilder {
    WriterProperties::builder().set_data_page_size_limit(300).set_write_batch_size(16).set_dictionary_page_size_limit(1 << 14)
}

fn request(paths: &[&Path]) -> Request {
    let paths = paths.iter().map(|path| path.to_path_buf()).collect();
    Request { paths, column: None, id_column: None, start: 0, count: None, nulls: Nulls::Raise, threads: 1 }
}

fn read(request: &Request) -> Result<Loaded> {
    let task = Task::new();
    Source::open(request, &task)?.read(&task)
}

fn folder() -> (TempDir, impl Fn(&str) -> PathBuf) {
    let folder = TempDir::new().unwrap();
    let at = folder.path().to_path_buf();
    (folder, move |name: &str| at.join(name))
}

/// The error of a read, without its folder.
fn problem(request: &Request) -> String {
    let text = read(request).unwrap_err().to_string();
    match request.paths[0].parent() {
        Some(folder) => text.replace(&format!("{}/", folder.display()), ""),
        None => text,
    }
}

#[test]
fn every_way_of_writing_gives_the_same_rows() {
    let (_folder, at) = folder();
    let rows = full(500, 7, 1);
    let expected = flat(&rows);
    let codecs = [
        Compression::UNCOMPRESSED,
        Compression::SNAPPY,
        Compression::GZIP(Default::default()),
        Compression::LZ4,
        Compression::LZ4_RAW,
        Compression::ZSTD(Default::default()),
    ];
    for codec in codecs {
        for version in [WriterVersion::PARQUET_1_0, WriterVersion::PARQUET_2_0] {
            for dictionary in [true, false] {
                for group in [500, 130, 1] {
                    let properties = small_pages().set_compression(codec).set_writer_version(version).set_dictionary_enabled(dictionary);
                    write(&at("a.parquet"), &rows, group, properties);
                    let found = read(&request(&[&at("a.parquet")])).unwrap();
                    assert!(found.vectors == expected && found.dim == 7 && found.skipped == 0, "{codec} {version:?} {dictionary} {group}");
                    assert_eq!(found.ids, (0..500).collect::<Vec<_>>());
                }
            }
        }
    }
    let column = ColumnPath::new(["vector", "list", "element"].map(String::from).to_vec());
    let split = small_pages().set_dictionary_enabled(false).set_column_encoding(column, Encoding::BYTE_STREAM_SPLIT);
    write(&at("a.parquet"), &rows, 200, split);
    assert_eq!(read(&request(&[&at("a.parquet")])).unwrap().vectors, expected);
}

#[test]
fn any_range_of_rows_by_any_threads_and_in_any_batches() {
    let (_folder, at) = folder();
    let rows = full(200, 3, 2);
    let expected = flat(&rows);
    write_keys(&at("a.parquet"), &rows[..70], 0, 32, small_pages());
    write_keys(&at("b.parquet"), &rows[70..71], 70, 32, small_pages());
    write_keys(&at("c.parquet"), &[], 71, 32, small_pages());
    write_keys(&at("d.parquet"), &rows[71..], 71, 50, small_pages());
    let files = ["a", "b", "c", "d"].map(|name| at(&format!("{name}.parquet")));
    let files = files.each_ref().map(PathBuf::as_path);
    for (start, count) in
        [(0, None), (0, Some(200)), (31, Some(2)), (69, Some(3)), (70, Some(1)), (199, None), (5, Some(0)), (200, None), (500, Some(7))]
    {
        for threads in [1, 3] {
            let request = Request { start, count, threads, id_column: Some("key".into()), ..request(&files) };
            let found = read(&request).unwrap();
            let from = start.min(200) as usize;
            let to = count.map_or(200, |count| (from + count as usize).min(200));
            assert_eq!(found.vectors, expected[from * 3..to * 3], "{start} {count:?}");
            assert_eq!(found.dim, 3);
            assert_eq!(found.ids, (from as i64..to as i64).collect::<Vec<_>>());
            for batch in [1, 7, 64, 1000] {
                let request = Request { id_column: None, ..request.clone() };
                let source = Source::open(&request, &Task::new()).unwrap();
                let mut walk = Walk::new(&source);
                let (mut vectors, mut ids, mut left) = (Vec::new(), Vec::new(), to - from);
                while left > 0 {
                    let now = left.min(batch);
                    let (mut some, mut numbers) = (vec![0.0; now * 3], vec![0; now]);
                    assert_eq!(walk.fill(&source, &mut some, &mut numbers, &Task::new()).unwrap().kept, now);
                    vectors.extend(some);
                    ids.extend(numbers);
                    left -= now;
                }
                assert_eq!(vectors, found.vectors);
                assert_eq!(ids, (from as i64..to as i64).collect::<Vec<_>>());
            }
        }
    }
}

#[test]
fn row_groups_outside_of_the_range_are_not_read() {
    let (_folder, at) = folder();
    let path = at("a.parquet");
    let rows = full(300, 5, 3);
    write(&path, &rows, 100, small_pages().set_compression(Compression::SNAPPY).set_dictionary_enabled(false));
    // The first and the last row group are overwritten: who read them would fail.
    let whole = Source::open(&request(&[&path]), &Task::new()).unwrap();
    assert_eq!(whole.pieces().len(), 3);
    let mut bytes = std::fs::read(&path).unwrap();
    let about = ParquetMetaDataReader::new().parse_and_finish(&bytes::Bytes::from(bytes.clone())).unwrap();
    for group in [0, 2] {
        for column in about.row_group(group).columns() {
            let (start, len) = column.byte_range();
            bytes[start as usize..(start + len) as usize].fill(0xff);
        }
    }
    std::fs::write(&path, bytes).unwrap();
    let middle = Request { start: 120, count: Some(60), ..request(&[&path]) };
    assert_eq!(read(&middle).unwrap().vectors, flat(&rows[120..180]));
    assert!(read(&request(&[&path])).is_err());
}

#[test]
fn flaws_are_named_or_left_out() {
    let (_folder, at) = folder();
    let path = at("a.parquet");
    let good = |x: f32| Some(vec![Some(x), Some(2.0 * x)]);
    let cases: [(Row, &str); 5] = [
        (None, "row 2 is null"),
        (Some(vec![]), "row 2 is an empty list"),
        (Some(vec![Some(1.0), None]), "row 2 has a null among its values"),
        (Some(vec![Some(f32::NAN), Some(0.0)]), "row 2 holds NaN"),
        (Some(vec![Some(0.0), Some(f32::NEG_INFINITY)]), "row 2 holds -inf"),
    ];
    for (flaw, message) in cases {
        for dictionary in [true, false] {
            let rows = vec![good(1.0), good(2.0), flaw.clone(), good(4.0), flaw.clone()];
            write(&path, &rows, 3, small_pages().set_dictionary_enabled(dictionary));
            let text = problem(&request(&[&path]));
            assert!(text.starts_with(&format!("a.parquet: {message}")) && text.contains("nulls=\"skip\""), "{text}");
            let found = read(&Request { nulls: Nulls::Skip, ..request(&[&path]) }).unwrap();
            assert_eq!((found.ids, found.vectors, found.skipped), (vec![0, 1, 3], vec![1.0, 2.0, 2.0, 4.0, 4.0, 8.0], 2));
            // The first row has the flaw: the width is not taken from it.
            write(&path, &rows[2..], 2, small_pages().set_dictionary_enabled(dictionary));
            let found = read(&Request { nulls: Nulls::Skip, id_column: Some("key".into()), ..request(&[&path]) }).unwrap();
            assert_eq!((found.ids, found.dim, found.skipped), (vec![1001], 2, 2));
        }
    }
    for (length, nulls) in [(1, Nulls::Raise), (3, Nulls::Raise), (1, Nulls::Skip), (3, Nulls::Skip)] {
        let other = Some(vec![Some(1.0); length]);
        write(&path, &[good(1.0), good(2.0), other, good(3.0)], 2, small_pages());
        let text = problem(&Request { nulls, ..request(&[&path]) });
        assert_eq!(text, format!("a.parquet: row 2 has {length} values, the rows before it have 2; all must have as many"));
    }
    // The sum is right and the lengths are not.
    let rows = [1, 3, 2, 4].map(|length| Some(vec![Some(1.0); length]));
    write(&path, &rows, 4, small_pages());
    assert!(problem(&request(&[&path])).contains("row 1 has 3 values, the rows before it have 1"));
    // Nothing but nulls.
    write(&path, &[None, Some(vec![])], 4, small_pages());
    assert!(problem(&request(&[&path])).contains("row 0 is null"));
    let found = read(&Request { nulls: Nulls::Skip, ..request(&[&path]) }).unwrap();
    assert_eq!((found.ids.len(), found.dim, found.skipped), (0, 0, 2));
}

#[test]
fn files_of_other_widths_are_refused() {
    let (_folder, at) = folder();
    write(&at("a.parquet"), &full(3, 4, 1), 10, small_pages());
    write(&at("b.parquet"), &full(3, 5, 1), 10, small_pages());
    std::fs::write(at("c.fvecs"), [5i32.to_le_bytes().to_vec(), vec![0; 20]].concat()).unwrap();
    let text = problem(&request(&[&at("a.parquet"), &at("b.parquet")]));
    assert_eq!(text, "b.parquet: row 0 (row 3 of all files) has 5 values, the rows before it have 4; all must have as many");
    let text = problem(&request(&[&at("a.parquet"), &at("c.fvecs")]));
    assert_eq!(text, "c.fvecs: rows of 5 values, the rows before it have 4; all must have as many");
    assert_eq!(read(&request(&[&at("b.parquet"), &at("c.fvecs")])).unwrap().ids, [0, 1, 2, 3]);
}

#[test]
fn of_several_errors_the_first_row_s_is_told() {
    let (_folder, at) = folder();
    let mut rows = full(4000, 3, 5);
    (rows[1234], rows[1235], rows[3999]) = (None, Some(vec![]), None);
    write(&at("a.parquet"), &rows, 100, small_pages());
    for threads in [1, 2, 8] {
        for _ in 0..20 {
            assert!(problem(&Request { threads, ..request(&[&at("a.parquet")]) }).contains("row 1234 is null"));
        }
    }
}

#[test]
fn repeated_ids_are_refused() {
    let (_folder, at) = folder();
    let mut rows = full(10, 2, 1);
    rows[1] = None;
    write(&at("a.parquet"), &rows, 4, small_pages());
    write(&at("b.parquet"), &rows[2..], 4, small_pages());
    let request = Request { id_column: Some("key".into()), nulls: Nulls::Skip, ..request(&[&at("a.parquet"), &at("b.parquet")]) };
    assert_eq!(
        problem(&request),
        "b.parquet: row 0 (row 10 of all files) has the id 1000 in column \"key\", and so has row 0; ids must differ"
    );
}

#[test]
fn a_cancelled_call_stops() {
    let (_folder, at) = folder();
    write(&at("a.parquet"), &full(100, 2, 1), 10, small_pages());
    let task = Task::new();
    let source = Source::open(&request(&[&at("a.parquet")]), &task).unwrap();
    task.cancel();
    assert_eq!(source.read(&task), Err(Error::Cancelled));
    assert!(matches!(Source::open(&request(&[&at("a.parquet")]), &task), Err(Error::Cancelled)));
}

/// Damage must end in rows or in an error of the file, in little memory. Returns whether it was noticed.
fn survives(path: &Path, bytes: &[u8], what: &str) -> bool {
    std::fs::write(path, bytes).unwrap();
    let outcome = read(&Request { id_column: Some("key".into()), ..request(&[path]) });
    match outcome {
        Ok(found) => {
            assert_eq!((found.ids.len() * found.dim, found.ids.len()), (found.vectors.len(), found.ids.len()), "{what}");
            false
        }
        // The names of columns are in the file too.
        Err(Error::File { .. } | Error::Invalid { .. } | Error::WrongType { .. }) => true,
        Err(error) => panic!("{what}: {error:?}"),
    }
}

/// A small file of each way of writing.
fn samples(folder: &Path) -> Vec<Vec<u8>> {
    let mut rows = full(40, 6, 9);
    rows[39] = Some(vec![Some(0.5); 6]);
    let codecs = [
        Compression::UNCOMPRESSED,
        Compression::SNAPPY,
        Compression::ZSTD(Default::default()),
        Compression::LZ4_RAW,
        Compression::GZIP(Default::default()),
    ];
    let mut found = Vec::new();
    for (i, codec) in codecs.into_iter().enumerate() {
        let version = if i % 2 == 0 { WriterVersion::PARQUET_1_0 } else { WriterVersion::PARQUET_2_0 };
        let path = folder.join("sample.parquet");
        write(&path, &rows, 25, small_pages().set_compression(codec).set_writer_version(version).set_dictionary_enabled(i != 1));
        found.push(std::fs::read(&path).unwrap());
    }
    found
}

#[test]
fn files_that_are_cut_off_anywhere_are_errors() {
    let (folder, at) = folder();
    for bytes in samples(folder.path()) {
        for cut in 0..bytes.len() {
            assert!(survives(&at("cut.parquet"), &bytes[..cut], "cut off"), "cut at {cut}");
        }
        // The end is there and some of what is before it is not.
        for from in (4..bytes.len() - 12).step_by(7) {
            let to = (from + 50).min(bytes.len() - 12);
            survives(&at("cut.parquet"), &[&bytes[..from], &bytes[to..]].concat(), "bytes left out");
        }
    }
}

#[test]
fn damage_anywhere_gives_an_error_or_other_numbers() {
    let (folder, at) = folder();
    let mut rng = Pcg64::seed_from_u64(4);
    let began = std::time::Instant::now();
    for (sample, bytes) in samples(folder.path()).into_iter().enumerate() {
        let mut noticed = 0;
        for place in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[place] ^= [0x01, 0x80, 0xff, 0x10][rng.random_range(0..4)];
            noticed += usize::from(survives(&at("bad.parquet"), &damaged, &format!("sample {sample}, byte {place}")));
        }
        assert!(noticed * 4 > bytes.len(), "{noticed} of {}", bytes.len());
        // Several bytes at once, for some seconds in all.
        for round in 0.. {
            if began.elapsed().as_secs_f64() > 2.0 * (sample + 1) as f64 {
                break;
            }
            let mut damaged = bytes.clone();
            for _ in 0..rng.random_range(1..12) {
                // Mostly in the headers at the end.
                let near = rng.random_range(1..bytes.len());
                let place = if rng.random_bool(0.5) { bytes.len() - 1 - near / 4 } else { near };
                damaged[place] = rng.random();
            }
            survives(&at("bad.parquet"), &damaged, &format!("sample {sample}, round {round}"));
        }
    }
}
