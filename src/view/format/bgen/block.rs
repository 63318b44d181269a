//! The genotypes of a variant: ploidies and probabilities of 8 bits (BGEN format, "Probability data storage").

use super::super::genotypes::Calls;
use super::zlib;
use crate::conventions::vcf_zarr::{MISSING_ALLELE, NO_ALLELE};

/// The number of samples whose calls are encoded at a time.
const SAMPLES_AT_A_TIME: usize = 32;
/// The bit of a ploidy that says that the call is missing.
const MISSING: u8 = 0x80;
/// The probability 1.
const CERTAIN: u8 = 0xff;
/// The bytes before the ploidies.
const START_BYTES: usize = 8;
/// The bytes between the ploidies and the probabilities.
const MIDDLE_BYTES: usize = 2;

/// The form of the genotypes of each variant.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Block {
    pub(super) calls: Calls,
    /// The samples in the file, if not all are.
    samples: Option<Vec<usize>>,
    /// The number of samples in the file.
    count: u32,
    /// The length of the genotypes before compression if no call has a lower ploidy than the array.
    most_bytes: u32,
    /// The length of the stream of zlib.
    stream_bytes: u32,
}

/// Buffers that are used for one variant after the other.
#[derive(Debug, Default)]
pub(super) struct Buffers {
    pairs: Vec<u8>,
    /// The genotypes of the last variant, before compression.
    pub(super) content: Vec<u8>,
}

impl Block {
    /// Returns the form of the genotypes of these samples; `None` for all samples.
    ///
    /// # Errors
    /// Returns that BGEN has no blocks as long as theirs.
    pub(super) fn new(calls: Calls, samples: Option<Vec<usize>>) -> Result<Self, String> {
        let count = match &samples {
            Some(samples) => samples.len() as u64,
            None => calls.samples,
        };
        let content = (count.checked_mul(calls.ploidy as u64 + 1))
            .and_then(|bytes| bytes.checked_add((START_BYTES + MIDDLE_BYTES) as u64));
        let stream = content.and_then(zlib::stream_bytes);
        // The length field of a block counts another one.
        let fits = |bytes: u64| {
            u32::try_from(bytes)
                .ok()
                .filter(|bytes| *bytes < u32::MAX - 4)
        };
        match (
            u32::try_from(count),
            content.and_then(fits),
            stream.and_then(fits),
        ) {
            (Ok(count), Some(most_bytes), Some(stream_bytes)) => Ok(Self {
                calls,
                samples,
                count,
                most_bytes,
                stream_bytes,
            }),
            _ => Err(format!(
                "{count} samples; the genotypes of a variant of BGEN are at most 4 GiB long"
            )),
        }
    }

    /// Returns the length of the genotypes of each variant in the file, with their length fields.
    pub(super) fn size_bytes(&self) -> u64 {
        8 + u64::from(self.stream_bytes)
    }

    /// Returns the memory of the list of samples in bytes.
    pub(super) fn memory_bytes(&self) -> u64 {
        let samples = self.samples.as_ref();
        samples.map_or(0, |samples| size_of_val(&samples[..])) as u64
    }

    /// Returns the two length fields: of what follows the first one, and of the genotypes before compression.
    pub(super) fn length_fields(&self, content: &[u8]) -> [u8; 8] {
        let content = u32::try_from(content.len()).unwrap_or(self.most_bytes);
        let lengths = u64::from(self.stream_bytes + 4) | u64::from(content) << 32;
        lengths.to_le_bytes()
    }

    /// Returns the length of the stream of zlib.
    pub(super) fn stream_bytes(&self) -> u64 {
        self.stream_bytes.into()
    }

    /// Encodes the genotypes of a variant into a buffer, from the calls and, if they are known, the phases of all
    /// samples of the arrays. `None` if there are too few of them.
    pub(super) fn encode(
        &self,
        calls: &[u8],
        phases: Option<&[u8]>,
        buffers: &mut Buffers,
    ) -> Option<()> {
        let is_phased = match (phases, &self.samples) {
            (None, _) => false,
            (Some(phases), None) => !phases.contains(&0),
            (Some(phases), Some(samples)) => {
                let mut phases = samples.iter().map(|sample| phases.get(*sample));
                phases.all(|phase| phase.is_some_and(|phase| *phase != 0))
            }
        };
        let Buffers { pairs, content } = buffers;
        let is_usual = (self.calls.number.size_bytes, self.calls.ploidy) == (1, 2);
        let calls = match (is_usual, &self.samples) {
            (true, None) => calls,
            (_, samples) => {
                pairs.clear();
                let call_bytes = self.calls.call_bytes();
                match samples {
                    None => pairs.extend(
                        calls
                            .chunks_exact(call_bytes)
                            .flat_map(|call| self.pair(call)),
                    ),
                    Some(samples) => {
                        for sample in samples {
                            let start = sample.checked_mul(call_bytes)?;
                            let call = calls.get(start..start.checked_add(call_bytes)?)?;
                            pairs.extend(self.pair(call));
                        }
                    }
                }
                pairs
            }
        };
        (calls.len() as u64 == 2 * u64::from(self.count)).then_some(())?;
        encode_pairs(self.count, calls, is_phased, content)
    }

    /// Returns the two alleles of a call, the second one absent in arrays of haploid calls.
    fn pair(&self, call: &[u8]) -> [u8; 2] {
        let mut alleles = call.chunks_exact(self.calls.number.size_bytes.max(1));
        let mut next = || alleles.next().map(|bytes| self.calls.allele(bytes));
        let first = next().unwrap_or(MISSING_ALLELE);
        let pair = match next() {
            Some(second) => [first, second],
            // An array of one allele has no call without alleles.
            None => [first.max(MISSING_ALLELE), NO_ALLELE],
        };
        pair.map(i8::cast_unsigned)
    }
}

/// Encodes the genotypes of a variant, from two alleles of each sample.
fn encode_pairs(count: u32, pairs: &[u8], is_phased: bool, content: &mut Vec<u8>) -> Option<()> {
    let samples = pairs.len() / 2;
    content.clear();
    content.resize(START_BYTES + samples + MIDDLE_BYTES + pairs.len(), 0);
    let (start, rest) = content.split_at_mut_checked(START_BYTES)?;
    let (ploidies, rest) = rest.split_at_mut_checked(samples)?;
    let (middle, probabilities) = rest.split_at_mut_checked(MIDDLE_BYTES)?;
    let (mut filled, mut haploid) = (0, 0);
    let parts = pairs.chunks(2 * SAMPLES_AT_A_TIME);
    for (pairs, ploidies) in parts.zip(ploidies.chunks_mut(SAMPLES_AT_A_TIME)) {
        if pairs.iter().fold(0, |all, allele| all | allele) <= 1 {
            ploidies.fill(2);
            let end = filled + pairs.len();
            encode_known(pairs, is_phased, probabilities.get_mut(filled..end)?);
            filled = end;
            continue;
        }
        for (pair, ploidy) in pairs.chunks_exact(2).zip(ploidies) {
            let (code, own) = call(pair, is_phased);
            *ploidy = code;
            let length = usize::from(code & !MISSING);
            let target = probabilities.get_mut(filled..filled + length)?;
            target.copy_from_slice(own.get(..length)?);
            filled += length;
            haploid += 2 - length;
        }
    }
    let least = if haploid > 0 { 1 } else { 2 };
    let most = if haploid == samples { least } else { 2 };
    start.copy_from_slice(&(u64::from(count) | 2 << 32).to_le_bytes());
    start.get_mut(6..)?.copy_from_slice(&[least, most]);
    middle.copy_from_slice(&[is_phased.into(), 8]);
    content.truncate(content.len() - haploid);
    Some(())
}

/// Encodes diploid calls of the first two alleles, as [`call`] does.
fn encode_known(pairs: &[u8], is_phased: bool, target: &mut [u8]) {
    if is_phased {
        for (probability, allele) in target.iter_mut().zip(pairs) {
            *probability = allele.wrapping_sub(1);
        }
        return;
    }
    for (probabilities, pair) in target.chunks_exact_mut(2).zip(pairs.chunks_exact(2)) {
        if let ([reference, heterozygous], [first, second]) = (probabilities, pair) {
            *reference = (first | second).wrapping_sub(1);
            *heterozygous = 0_u8.wrapping_sub(first ^ second);
        }
    }
}

/// Returns the ploidy of a call, with the bit of missing calls, and as many probabilities: of the reference in each
/// haplotype; or, unphased, of two and of one reference.
fn call(pair: &[u8], is_phased: bool) -> (u8, [u8; 2]) {
    let [first, second] = match pair {
        [first, second] => [first.cast_signed(), second.cast_signed()],
        _ => [MISSING_ALLELE; 2],
    };
    let certain = |is_certain: bool| if is_certain { CERTAIN } else { 0 };
    match (first, second) {
        (0 | 1, NO_ALLELE) => (1, [certain(first == 0), 0]),
        (0 | 1, 0 | 1) if is_phased => (2, [certain(first == 0), certain(second == 0)]),
        (0 | 1, 0 | 1) => (2, [certain(first + second == 0), certain(first != second)]),
        (NO_ALLELE, _) => (MISSING | 2, [0; 2]),
        (_, NO_ALLELE) => (MISSING | 1, [0; 2]),
        _ => (MISSING | 2, [0; 2]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::{Number, NumberKind};
    use crate::zarr::ByteOrder;

    fn calls(samples: u64, ploidy: usize, size: usize) -> Calls {
        Calls {
            variants: 1,
            samples,
            ploidy,
            number: Number::new(NumberKind::Int, size, ByteOrder::Little),
        }
    }

    fn encoded(block: &Block, calls: &[i8], phases: Option<&[u8]>) -> Option<Vec<u8>> {
        let calls: Vec<u8> = calls.iter().map(|allele| allele.cast_unsigned()).collect();
        let mut buffers = Buffers::default();
        block.encode(&calls, phases, &mut buffers)?;
        Some(buffers.content)
    }

    #[test]
    fn calls_have_the_bytes_of_vcztools() {
        let block = Block::new(calls(6, 2, 1), None).unwrap();
        assert_eq!(block.size_bytes(), 8 + 2 + 5 + 28 + 4);
        let known = [0, 0, 0, 1, 1, 0, 1, 1, 0, 0, 1, 1];
        let start = [6, 0, 0, 0, 2, 0, 2, 2, 2, 2, 2, 2, 2, 2];
        let unphased = [0, 8, 255, 0, 0, 255, 0, 255, 0, 0, 255, 0, 0, 0];
        let found = encoded(&block, &known, Some(&[1, 1, 1, 0, 1, 1])).unwrap();
        assert_eq!(found, [&start[..], &unphased].concat());
        let phased = [1, 8, 255, 255, 255, 0, 0, 255, 0, 0, 255, 255, 0, 0];
        let found = encoded(&block, &known, Some(&[1; 6])).unwrap();
        assert_eq!(found, [&start[..], &phased].concat());
        let others = [0, -1, -1, -1, 0, -2, 1, -2, -1, -2, 2, 0];
        let expected = [
            &[6, 0, 0, 0, 2, 0, 1, 2][..],
            &[0x82, 0x82, 1, 1, 0x81, 0x82, 0, 8],
            &[0, 0, 0, 0, 255, 0, 0, 0, 0],
        ];
        let found = encoded(&block, &others, None).unwrap();
        assert_eq!(found, expected.concat());
        assert_eq!(encoded(&block, &known[..10], None), None);
    }

    #[test]
    fn known_calls_are_encoded_as_others() {
        for is_phased in [false, true] {
            for pair in [[0, 0], [0, 1], [1, 0], [1, 1]] {
                let mut found = [9; 2];
                encode_known(&pair, is_phased, &mut found);
                assert_eq!((2, found), call(&pair, is_phased), "{pair:?}");
            }
        }
        // More samples than are encoded at a time, of which a few are haploid.
        let mut alleles = [0, 1, 1, 1, 0, 0].repeat(33);
        let block = Block::new(calls(99, 2, 1), None).unwrap();
        let whole = encoded(&block, &alleles, None).unwrap();
        assert_eq!(whole.len(), 10 + 3 * 99);
        alleles[41] = -2;
        alleles[43] = -2;
        let found = encoded(&block, &alleles, None).unwrap();
        assert_eq!(found.len(), whole.len() - 2);
        assert_eq!(found[109 + 42..], whole[109 + 44..]);
        assert_eq!(found[..8], [99, 0, 0, 0, 2, 0, 1, 2]);
    }

    #[test]
    fn arrays_of_one_allele_are_haploid_and_wide_numbers_are_read() {
        let block = Block::new(calls(3, 1, 1), None).unwrap();
        assert_eq!(block.size_bytes(), 8 + 2 + 5 + 16 + 4);
        let found = encoded(&block, &[0, 1, -2], Some(&[1; 3])).unwrap();
        let expected = [3, 0, 0, 0, 2, 0, 1, 1, 1, 1, 0x81, 1, 8, 255, 0, 0];
        assert_eq!(found, expected);
        let block = Block::new(calls(2, 2, 2), Some(vec![1])).unwrap();
        let found = encoded(&block, &[0, 0, 0, 0, 1, 0, 1, 0], None).unwrap();
        assert_eq!(found, [1, 0, 0, 0, 2, 0, 2, 2, 2, 0, 8, 0, 0]);
        assert_eq!(encoded(&block, &[0; 4], None), None);
        let none = Block::new(calls(0, 2, 1), None).unwrap();
        let found = encoded(&none, &[], None).unwrap();
        assert_eq!(found, [0, 0, 0, 0, 2, 0, 2, 2, 0, 8]);
        assert!(Block::new(calls(1 << 31, 2, 1), None).is_err());
    }
}
