//! Tests of the parsers with small generated files in all byte orders, and with damaged ones.

use std::collections::BTreeMap;
use std::io::Write;

use proptest::prelude::*;

use super::bytes::ByteOrder;
use super::gnu::{FIELDS, Fields};
use super::*;

type Map = BTreeMap<Vec<u8>, Vec<u8>>;

/// A byte buffer that can be written in any order.
struct Made {
    bytes: Vec<u8>,
    order: ByteOrder,
}

impl Made {
    fn put(&mut self, at: usize, bytes: &[u8]) {
        let end = at + bytes.len();
        self.bytes.resize(self.bytes.len().max(end), 0);
        self.bytes[at..end].copy_from_slice(bytes);
    }

    fn u16(&mut self, at: usize, value: usize) {
        let value = u16::try_from(value).unwrap();
        match self.order {
            ByteOrder::Little => self.put(at, &value.to_le_bytes()),
            ByteOrder::Big => self.put(at, &value.to_be_bytes()),
        }
    }

    fn u32(&mut self, at: usize, value: u32) {
        match self.order {
            ByteOrder::Little => self.put(at, &value.to_le_bytes()),
            ByteOrder::Big => self.put(at, &value.to_be_bytes()),
        }
    }

    fn offset(&mut self, width: usize, at: usize, value: u32) {
        match (width, self.order) {
            (4, _) => self.u32(at, value),
            (_, ByteOrder::Little) => self.put(at, &u64::from(value).to_le_bytes()),
            (_, ByteOrder::Big) => self.put(at, &u64::from(value).to_be_bytes()),
        }
    }
}

fn number(value: usize) -> u32 {
    u32::try_from(value).unwrap()
}

/// Builds a GNU dbm database with three buckets: one for the first half of the hashes, and one for each
/// quarter of the other half.
fn gnu(order: ByteOrder, magic: u32, fields: Fields, values: &Map) -> Vec<u8> {
    let mut file = Made {
        bytes: Vec::new(),
        order,
    };
    let (width, table, element) = (fields.offset_bytes, fields.table_at(), fields.element_bytes);
    let (elements, directory) = (32, 512);
    let bucket_bytes = table + elements * element + 4;
    let bucket = |number: usize| 1024 + number * bucket_bytes;
    file.u32(0, magic);
    file.u32(4, 512);
    file.offset(width, 8, number(directory));
    let at = 8 + width;
    let sizes = [width * 4, 2, bucket_bytes, elements];
    for (place, size) in sizes.into_iter().enumerate() {
        file.u32(at + 4 * place, number(size));
    }
    for (entry, place) in [0, 0, 1, 2].into_iter().enumerate() {
        file.offset(width, directory + entry * width, number(bucket(place)));
    }
    for (place, bits) in [1, 2, 2].into_iter().enumerate() {
        let start = bucket(place);
        file.put(start, &vec![0; bucket_bytes]);
        file.u32(start + table - 8, bits);
        for slot in 0..elements {
            file.u32(start + table + slot * element, u32::MAX);
        }
    }
    let mut counts = [0; 3];
    for (key, value) in values {
        let hash = super::gnu::hash_of_signed(key);
        let place = [0, 0, 1, 2][(hash >> 29) as usize];
        let at = bucket(place) + table + counts[place] * element;
        counts[place] += 1;
        let address = file.bytes.len() + 3;
        file.u32(at, hash);
        file.offset(width, at + 8, number(address));
        file.u32(at + 8 + width, number(key.len()));
        file.u32(at + 12 + width, number(value.len()));
        file.put(address, key);
        file.put(address + key.len(), value);
    }
    for (place, count) in counts.into_iter().enumerate() {
        file.u32(bucket(place) + table - 4, number(count));
    }
    let end = number(file.bytes.len());
    file.offset(width, 8 + width + 16, end);
    file.bytes
}

const PAGE: usize = 512;

/// Builds a Berkeley DB file.
struct Berkeley {
    file: Made,
    pages: usize,
}

impl Berkeley {
    fn new(order: ByteOrder, magic: u32, kind: u8) -> Self {
        let mut file = Made {
            bytes: vec![0; PAGE],
            order,
        };
        file.u32(12, magic);
        file.u32(16, 9);
        file.u32(20, number(PAGE));
        file.put(25, &[kind]);
        Self { file, pages: 1 }
    }

    /// Begins a page and returns its number.
    fn page(&mut self, kind: u8, level: u8) -> usize {
        let page = self.pages;
        self.pages += 1;
        self.file.put(page * PAGE, &[0; PAGE]);
        self.file.u32(page * PAGE + 8, number(page));
        self.file.put(page * PAGE + 24, &[level, kind]);
        page
    }

    fn link(&mut self, pages: &[usize]) {
        for pair in pages.windows(2) {
            self.file.u32(pair[0] * PAGE + 16, number(pair[1]));
            self.file.u32(pair[1] * PAGE + 12, number(pair[0]));
        }
    }

    /// Writes items from the end of a page to its beginning.
    fn items(&mut self, page: usize, items: &[Vec<u8>]) {
        let mut end = PAGE;
        for (index, item) in items.iter().enumerate() {
            end -= item.len();
            self.file.put(page * PAGE + end, item);
            self.file.u16(page * PAGE + 26 + 2 * index, end);
        }
        assert!(end >= 26 + 2 * items.len(), "too many items");
        self.file.u16(page * PAGE + 20, items.len());
    }

    /// Writes the pages of a long item; returns an item with its first page and its size.
    fn chain(&mut self, content: &[u8]) -> Vec<u8> {
        let parts: Vec<&[u8]> = content.chunks(PAGE - 26).collect();
        let pages: Vec<usize> = parts.iter().map(|_| self.page(7, 0)).collect();
        self.link(&pages);
        for (page, part) in pages.iter().zip(parts) {
            self.file.u16(page * PAGE + 22, part.len());
            self.file.put(page * PAGE + 26, part);
        }
        let mut made = Made {
            bytes: Vec::new(),
            order: self.file.order,
        };
        made.u32(0, number(pages[0]));
        made.u32(4, number(content.len()));
        made.bytes
    }

    fn finish(mut self) -> Vec<u8> {
        self.file.u32(32, number(self.pages - 1));
        self.file.bytes
    }
}

/// Builds a hash table with two buckets of two pages each.
fn berkeley_hash(order: ByteOrder, values: &Map) -> Vec<u8> {
    let mut made = Berkeley::new(order, 0x61561, 8);
    for (place, value) in [1, 1, 0].into_iter().enumerate() {
        made.file.u32(72 + 4 * place, value);
    }
    made.file.u32(92, 0x5e68_8dd1);
    made.file.u32(96, 1);
    made.file.u32(100, 1);
    let first = [made.page(13, 0), made.page(2, 0)];
    let mut pages: [Vec<usize>; 2] = first.map(|page| vec![page]);
    let mut items: [Vec<Vec<Vec<u8>>>; 2] = [vec![Vec::new()], vec![Vec::new()]];
    for (key, value) in values {
        let hash = key.iter().fold(0_u32, |hash, byte| {
            hash.wrapping_mul(16_777_619) ^ u32::from(*byte)
        });
        let bucket = (hash & 1) as usize;
        let mut item = |content: &[u8]| match content.len() <= PAGE / 4 {
            true => [&[1][..], content].concat(),
            false => [&[3, 0, 0, 0][..], &made.chain(content)].concat(),
        };
        let pair = [item(key), item(value)];
        let page = items[bucket].last_mut().unwrap();
        let used: usize = page.iter().chain(&pair).map(|item| item.len() + 2).sum();
        match used + 26 <= PAGE {
            true => page.extend(pair),
            false => {
                items[bucket].push(pair.to_vec());
                pages[bucket].push(made.page(13, 0));
            }
        }
    }
    for (pages, items) in pages.iter().zip(items) {
        made.link(pages);
        for (page, items) in pages.iter().zip(items) {
            made.items(*page, &items);
        }
    }
    made.finish()
}

/// Builds a tree with one branch.
fn berkeley_tree(order: ByteOrder, values: &Map) -> Vec<u8> {
    let mut made = Berkeley::new(order, 0x53162, 9);
    let root = made.page(3, 2);
    made.file.u32(88, number(root));
    let mut leaves: Vec<(usize, Vec<Vec<u8>>)> = Vec::new();
    for (key, value) in values {
        let mut item = |content: &[u8]| {
            let mut item = Made {
                bytes: Vec::new(),
                order,
            };
            if content.len() <= PAGE / 4 {
                item.u16(0, content.len());
                item.put(2, &[1]);
                item.put(3, content);
            } else {
                item.put(0, &[0, 0, 3, 0]);
                item.put(4, &made.chain(content));
            }
            item.bytes
        };
        let pair = [item(key), item(value)];
        let used = |leaf: &[Vec<u8>]| -> usize {
            leaf.iter().chain(&pair).map(|item| item.len() + 2).sum()
        };
        match leaves
            .last_mut()
            .filter(|(_, leaf)| used(leaf) + 26 <= PAGE)
        {
            Some((_, leaf)) => leaf.extend(pair),
            None => leaves.push((made.page(5, 1), pair.to_vec())),
        }
    }
    let numbers: Vec<usize> = leaves.iter().map(|(page, _)| *page).collect();
    made.link(&numbers);
    let mut entries = Vec::new();
    for (page, items) in leaves {
        made.items(page, &items);
        let mut entry = Made {
            bytes: vec![0, 0, 1, 0],
            order,
        };
        entry.u32(4, number(page));
        entry.u32(8, 0);
        entries.push(entry.bytes);
    }
    made.items(root, &entries);
    made.finish()
}

fn dumb(values: &Map) -> Vec<u8> {
    let (mut index, mut offset) = (String::new(), 0);
    for (key, value) in values {
        let key: String = key.iter().map(|byte| format!("\\x{byte:02x}")).collect();
        index += &format!("'{key}', ({offset}, {})\n", value.len());
        offset += value.len();
    }
    index.into_bytes()
}

const LITTLE_GNU: u32 = 0x1357_9acf;

/// Reads a file in the given format.
fn read(format: Format, bytes: &[u8], values: &[u8]) -> Result<Map, Failure> {
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(bytes).unwrap();
    let file = Bytes::new(&file, bytes.len() as u64);
    let mut values_file = tempfile::tempfile().unwrap();
    values_file.write_all(values).unwrap();
    let values = match format {
        Format::Dumb => Bytes::new(&values_file, values.len() as u64),
        Format::Gnu | Format::Berkeley => file,
    };
    let content = LoadedContent::load(format, file, values, 1 << 20)?;
    let mut found = Map::new();
    for (key, stored) in (0..content.index.len()).map_while(|number| content.index.get(number)) {
        let size = usize::try_from(stored.size_bytes).unwrap();
        assert!(
            stored.size_bytes <= values.size_bytes,
            "a value longer than its file"
        );
        let mut value = vec![0; size];
        // Read in parts, the last part first.
        for start in (0..size).step_by(1000).rev() {
            let end = size.min(start + 1000);
            content.read(values, stored, start as u64, &mut value[start..end])?;
        }
        found.insert(key.to_vec(), value);
    }
    Ok(found)
}

fn sample() -> Map {
    let mut values: Map = (0..24_u8)
        .map(|n| {
            let length = usize::from(n) * 7;
            (format!("a{}/{n}.0", n % 3).into_bytes(), vec![n; length])
        })
        .collect();
    values.insert(b".zgroup".to_vec(), b"{\"zarr_format\": 2}".to_vec());
    values.insert(b"\xff\x80/\xe9".to_vec(), Vec::new());
    values.insert(vec![b'k'; 300], b"of a long key".to_vec());
    values.insert(
        b"long".to_vec(),
        (0..5000_u32).map(|n| (n % 251) as u8).collect(),
    );
    values
}

/// Returns a file of each format, byte order and width.
fn samples() -> Vec<(Format, Vec<u8>)> {
    let values = sample();
    let mut all = vec![(Format::Dumb, dumb(&values))];
    for order in [ByteOrder::Little, ByteOrder::Big] {
        let [small, wide, packed] = FIELDS;
        for (magic, fields) in [
            (0x1357_9ace, wide),
            (0x1357_9ace, small),
            (0x1357_9acd, small),
            (LITTLE_GNU, wide),
            (LITTLE_GNU, packed),
            (0x1357_9ad0, small),
            (0x1357_9ad1, wide),
        ] {
            all.push((Format::Gnu, gnu(order, magic, fields, &values)));
        }
        all.push((Format::Berkeley, berkeley_hash(order, &values)));
        all.push((Format::Berkeley, berkeley_tree(order, &values)));
    }
    all
}

#[test]
fn keys_and_values_are_read_from_each_format_in_both_byte_orders() {
    let values: Vec<u8> = sample().into_values().flatten().collect();
    for (number, (format, bytes)) in samples().into_iter().enumerate() {
        let found = read(format, &bytes, &values).unwrap_or_else(|e| panic!("{number}: {e:?}"));
        assert_eq!(found, sample(), "sample {number}");
        match format {
            Format::Dumb => assert!(super::dumb::is_dumb(&bytes)),
            format => assert_eq!(Format::of(&bytes), Some(format), "sample {number}"),
        }
    }
}

#[test]
fn a_truncated_file_is_an_error() {
    let values: Vec<u8> = sample().into_values().flatten().collect();
    for (number, (format, bytes)) in samples().into_iter().enumerate() {
        for length in (0..bytes.len()).step_by(7) {
            let cut = read(format, &bytes[..length], &values);
            // An index that ends between two lines is valid.
            let is_line = format == Format::Dumb && (length == 0 || bytes[length - 1] == b'\n');
            assert!(cut.is_err() || is_line, "sample {number}: {length}");
        }
    }
}

/// Overwrites bytes of a Berkeley DB file, and returns the reason why the file is refused.
fn refused(bytes: &[u8], at: usize, to: &[u8]) -> String {
    let mut bytes = bytes.to_vec();
    bytes[at..at + to.len()].copy_from_slice(to);
    match read(Format::Berkeley, &bytes, &[]) {
        Err(Failure::Failed(error)) => error.to_string(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_gnu_database_without_its_directory_is_reported_as_truncated() {
    let (_, bytes) = &samples()[4];
    match read(Format::Gnu, &bytes[..200], b"") {
        Err(Failure::Failed(error)) => assert!(error.to_string().contains("truncated"), "{error}"),
        other => panic!("{other:?}"),
    }
}

#[test]
fn unsupported_features_of_berkeley_db_are_refused_by_name() {
    let hash = berkeley_hash(ByteOrder::Little, &sample());
    let tree = berkeley_tree(ByteOrder::Little, &sample());
    for (file, at, to, what) in [
        (&hash, 16, &[4][..], "version 4"),
        (&hash, 24, &[1], "encryption"),
        (&tree, 26, &[1], "checksums"),
        (&hash, 48, &[1], "several values"),
        (&tree, 48, &[1], "several values"),
        (&tree, 48, &[0x20], "databases"),
        (&hash, 92, &[0], "hash of its own"),
        (&tree, 20, &[0, 3], "page size"),
        (&hash, 72, &[9], "buckets"),
    ] {
        let error = refused(file, at, to);
        assert!(error.contains(what), "{error}");
    }
}

#[test]
fn pages_with_cyclic_or_invalid_links_are_errors() {
    let hash = berkeley_hash(ByteOrder::Little, &sample());
    let tree = berkeley_tree(ByteOrder::Little, &sample());
    let next = |file: &[u8], kind: u8| {
        let page = (1..file.len() / PAGE)
            .find(|page| file[page * PAGE + 25] == kind && file[page * PAGE + 16] != 0)
            .unwrap();
        (page, page * PAGE + 16)
    };
    let (page, at) = next(&hash, 13);
    let own = u8::try_from(page).unwrap();
    assert!(refused(&hash, at, &[own]).contains("used twice"));
    assert!(refused(&hash, at, &[200]).contains("page 200"));
    let (_, at) = next(&tree, 5);
    assert!(refused(&tree, at, &[0; 4]).contains("not linked"));
    let (page, at) = next(&tree, 7);
    let own = u8::try_from(page).unwrap();
    assert!(refused(&tree, at, &[own]).contains("another page"));
    assert!(refused(&tree, at, &[200]).contains("page 200"));
    // The root is its own child.
    let item = usize::from(u16::from_le_bytes([tree[PAGE + 26], tree[PAGE + 27]]));
    assert!(refused(&tree, PAGE + item + 4, &[1]).contains("used twice"));
}

#[test]
fn a_bucket_with_keys_of_another_one_is_an_error() {
    let file = gnu(ByteOrder::Little, LITTLE_GNU, FIELDS[1], &sample());
    let mut swapped = file.clone();
    // Both entries refer to buckets of two bits.
    let (third, fourth) = (512 + 16, 512 + 24);
    for byte in 0..8 {
        swapped.swap(third + byte, fourth + byte);
    }
    assert!(read(Format::Gnu, &swapped, &[]).is_err());
    let mut alone = file;
    // The first two entries refer to one bucket.
    alone[512 + 8] ^= 1;
    assert!(read(Format::Gnu, &alone, &[]).is_err());
}

proptest! {
    #![proptest_config(ProptestConfig {
        failure_persistence: None,
        cases: 2000,
        ..ProptestConfig::default()
    })]

    #[test]
    fn a_damaged_file_is_an_error_or_has_values_of_their_size(
        sample in 0..19_usize,
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
    ) {
        let (format, mut bytes) = samples().swap_remove(sample);
        for (at, byte) in changes {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        let _ = read(format, &bytes, &[0; 8000]);
    }
}
