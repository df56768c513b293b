//! Records of the checks, in a form of neither client.

use anyhow::Result;

use crate::checks::equal;

pub const FIRST_MS: i64 = 1_700_000_000_000;

/// A record of a topic; a key or value of None is null. Headers are sorted by their keys.
#[derive(Clone, Debug, PartialEq)]
pub struct Record {
    pub partition: i32,
    pub offset: i64,
    pub key: Option<Vec<u8>>,
    pub value: Option<Vec<u8>>,
    pub headers: Vec<(String, Vec<u8>)>,
    pub timestamp_ms: i64,
}

pub fn value(number: i64) -> Vec<u8> {
    format!("record {number} ").repeat(8).into_bytes()
}

/// A record with a key, a value and headers.
pub fn full(number: i64, partitions: i32) -> Record {
    Record {
        partition: i32::try_from(number).expect("a small number") % partitions,
        offset: -1,
        key: Some(format!("key {number}").into_bytes()),
        value: Some(value(number)),
        headers: vec![("number".to_owned(), number.to_be_bytes().to_vec()), ("of".to_owned(), b"Rust".to_vec())],
        timestamp_ms: FIRST_MS + number,
    }
}

/// The same with a null key or value, or without headers, now and then.
pub fn sparse(number: i64, partitions: i32) -> Record {
    let mut made = full(number, partitions);
    if number % 5 == 0 {
        made.key = None;
    }
    if number % 7 == 0 {
        made.value = None;
    }
    if number % 11 == 0 {
        made.headers.clear();
    }
    made
}

/// Those of a partition, in order.
pub fn of_partition(records: &[Record], partition: i32) -> Vec<Record> {
    records.iter().filter(|each| each.partition == partition).cloned().collect()
}

/// The records of a partition as they are read when they were written from an offset on.
pub fn stored(records: &[Record], partition: i32, from: i64) -> Vec<Record> {
    let mut found = of_partition(records, partition);
    for (each, offset) in found.iter_mut().zip(from..) {
        each.offset = offset;
    }
    found
}

/// Compare one by one: a message shows the first pair that differs.
pub fn equal_records(what: &str, got: &[Record], wanted: &[Record]) -> Result<()> {
    equal(&format!("number of records, {what}"), got.len(), wanted.len())?;
    for (one, other) in got.iter().zip(wanted) {
        equal(&format!("a record, {what}"), one, other)?;
    }
    Ok(())
}

/// The values, sorted.
pub fn values(records: &[Record]) -> Vec<Vec<u8>> {
    let mut found: Vec<Vec<u8>> = records.iter().filter_map(|each| each.value.clone()).collect();
    found.sort();
    found
}
