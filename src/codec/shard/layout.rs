//! The positions of the elements of inner chunks in a decoded shard.

/// Strides of inner chunks in the decoded shard, in bytes or elements.
#[derive(Debug)]
pub(super) struct InnerLayout {
    /// Number of bytes from one inner chunk to the next along each axis.
    chunk_steps: Vec<usize>,
    /// The axes along which an inner chunk has several runs: number of runs, and bytes between them.
    rows: Vec<(usize, usize)>,
    /// Size of a contiguous run of an inner chunk in bytes.
    pub(super) run: usize,
    /// Size of a shard in bytes.
    pub(super) total: usize,
}

impl InnerLayout {
    /// Returns the layout; `None` if the sizes overflow.
    pub(super) fn new(outer: &[u64], inner: &[u64], item: usize) -> Option<Self> {
        let mut stride = item;
        let mut run = item;
        let mut together = true;
        let (mut chunk_steps, mut rows) = (Vec::new(), Vec::new());
        for (outer, inner) in outer.iter().zip(inner).rev() {
            let (outer, inner) = (usize::try_from(*outer).ok()?, usize::try_from(*inner).ok()?);
            chunk_steps.push(stride.checked_mul(inner)?);
            if together {
                run = run.checked_mul(inner)?;
            } else if inner > 1 {
                rows.push((inner, stride));
            }
            together &= inner == outer;
            stride = stride.checked_mul(outer)?;
        }
        chunk_steps.reverse();
        rows.reverse();
        Some(Self {
            chunk_steps,
            rows,
            run,
            total: stride,
        })
    }

    /// Returns whether an inner chunk is contiguous.
    pub(super) fn is_one_run(&self) -> bool {
        self.rows.is_empty()
    }

    /// Returns the start of the inner chunk at a grid position.
    pub(super) fn start(&self, place: &[usize]) -> usize {
        place
            .iter()
            .zip(&self.chunk_steps)
            .map(|(at, step)| at * step)
            .sum()
    }

    /// Calls `f` with the start of each run, in C order, until it fails.
    pub(super) fn for_each_run<E>(
        &self,
        depth: usize,
        start: usize,
        f: &mut impl FnMut(usize) -> Result<(), E>,
    ) -> Result<(), E> {
        match self.rows.get(depth) {
            Some((count, step)) => {
                (0..*count).try_for_each(|i| self.for_each_run(depth + 1, start + i * step, f))
            }
            None => f(start),
        }
    }
}

/// Fills `to` with repetitions of `fill`; the length of `to` must be a multiple of that of `fill`.
pub(super) fn fill_with(to: &mut [u8], fill: &[u8]) {
    match fill {
        [] => {}
        [first, rest @ ..] if rest.iter().all(|byte| byte == first) => to.fill(*first),
        _ => {
            let filled = fill.len().min(to.len());
            if let (Some(head), Some(fill)) = (to.get_mut(..filled), fill.get(..filled)) {
                head.copy_from_slice(fill);
            }
            // Each step doubles the filled part.
            let mut done = filled;
            while done < to.len() {
                let more = done.min(to.len() - done);
                to.copy_within(..more, done);
                done += more;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_element_of_every_inner_chunk_is_decoded_to_its_index() {
        for (outer, inner) in [
            ([4, 6, 8], [2, 3, 4]),
            ([4, 6, 8], [2, 6, 8]),
            ([4, 6, 8], [1, 6, 2]),
        ] {
            let layout = InnerLayout::new(&outer, &inner, 1).unwrap();
            let mut seen = vec![0; layout.total];
            let grid = [0, 1, 2].map(|axis| usize::try_from(outer[axis] / inner[axis]).unwrap());
            for a in 0..grid[0] {
                for b in 0..grid[1] {
                    for c in 0..grid[2] {
                        let visited = layout.for_each_run(0, layout.start(&[a, b, c]), &mut |at| {
                            seen[at..at + layout.run].iter_mut().for_each(|n| *n += 1);
                            Ok::<(), ()>(())
                        });
                        visited.unwrap();
                    }
                }
            }
            assert!(seen.iter().all(|n| *n == 1), "{inner:?}");
        }
        assert!(InnerLayout::new(&[4, 6], &[2, 6], 1).unwrap().is_one_run());
        assert!(InnerLayout::new(&[u64::MAX, 2], &[1, 1], 1).is_none());
    }

    #[test]
    fn fill_values_of_any_size_are_repeated() {
        let mut to = [9; 10];
        fill_with(&mut to[..9], &[1, 2, 3]);
        assert_eq!(to, [1, 2, 3, 1, 2, 3, 1, 2, 3, 9]);
        fill_with(&mut to, &[5, 5]);
        assert_eq!(to, [5; 10]);
        fill_with(&mut to, &[]);
        fill_with(&mut [], &[1, 2]);
        assert_eq!(to, [5; 10]);
    }
}
