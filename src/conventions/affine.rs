//! Affine transforms from the indices of an array to coordinates.

/// The maximum number of axes of a transform.
const MAX_AXES: usize = 32;

/// An affine transform: a row for each coordinate, with a factor for each index and an offset.
#[derive(Debug, Clone, PartialEq)]
pub struct Affine {
    rows: Vec<Vec<f64>>,
    inputs: usize,
}

/// The coordinate that an index alone determines: `coordinate[axis] = step * index + first`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Step {
    /// The axis of the coordinates.
    pub axis: usize,
    /// The distance of adjacent elements; never zero.
    pub step: f64,
    /// The coordinate of the centre of the first element.
    pub first: f64,
}

impl Affine {
    /// Returns the transform whose coordinates are the indices.
    pub fn identity(rank: usize) -> Option<Self> {
        Self::scale(&vec![1.0; rank])
    }

    /// Returns the transform that multiplies each index.
    pub fn scale(factors: &[f64]) -> Option<Self> {
        let row = |place: usize, factor: f64| {
            let mut row = vec![0.0; factors.len() + 1];
            if let Some(cell) = row.get_mut(place) {
                *cell = factor;
            }
            row
        };
        let rows = factors.iter().enumerate();
        Self::of_rows(
            rows.map(|(place, factor)| row(place, *factor)).collect(),
            factors.len(),
        )
    }

    /// Returns the transform that adds to each index.
    pub fn translation(offsets: &[f64]) -> Option<Self> {
        let mut found = Self::identity(offsets.len())?;
        for (row, offset) in found.rows.iter_mut().zip(offsets) {
            if let Some(last) = row.last_mut() {
                *last = *offset;
            }
        }
        Some(found)
    }

    /// Returns the transform whose coordinate `n` is the index `axes[n]`.
    pub fn permutation(axes: &[usize]) -> Option<Self> {
        let inputs = axes.len();
        let rows = axes.iter().map(|axis| {
            let mut row = vec![0.0; inputs + 1];
            *row.get_mut(*axis).filter(|_| *axis < inputs)? = 1.0;
            Some(row)
        });
        Self::of_rows(rows.collect::<Option<_>>()?, inputs)
    }

    /// Returns a transform of `inputs` indices: rows of `inputs` factors, and of an offset.
    ///
    /// `None` if a row has another length, a number is not finite, or the transform is too large.
    pub fn of_rows(rows: Vec<Vec<f64>>, inputs: usize) -> Option<Self> {
        let is_row =
            |row: &Vec<f64>| row.len() == inputs + 1 && row.iter().all(|number| number.is_finite());
        let is_small = rows.len() <= MAX_AXES && inputs <= MAX_AXES;
        (is_small && rows.iter().all(is_row)).then_some(Self { rows, inputs })
    }

    /// Returns the number of indices.
    pub fn inputs(&self) -> usize {
        self.inputs
    }

    /// Returns the number of coordinates.
    pub fn outputs(&self) -> usize {
        self.rows.len()
    }

    /// Returns the factor of each index for a coordinate, then the offset.
    pub fn row(&self, coordinate: usize) -> Option<&[f64]> {
        self.rows.get(coordinate).map(Vec::as_slice)
    }

    /// Returns the transform that applies `self`, then `next`; `None` if their axes do not fit.
    pub fn then(&self, next: &Self) -> Option<Self> {
        if next.inputs != self.outputs() {
            return None;
        }
        let product = |row: &Vec<f64>| {
            let (offset, factors) = row.split_last()?;
            let mut product = vec![0.0; self.inputs + 1];
            for (factor, own) in factors.iter().zip(&self.rows) {
                for (to, from) in product.iter_mut().zip(own) {
                    *to += factor * from;
                }
            }
            *product.last_mut()? += offset;
            Some(product)
        };
        let rows = next.rows.iter().map(product);
        Self::of_rows(rows.collect::<Option<_>>()?, self.inputs)
    }

    /// Returns the step along each index if each one determines one coordinate, and no coordinate depends on
    /// two; `None` for rotations and shears.
    pub fn steps(&self) -> Option<Vec<Step>> {
        let step = |input: usize| {
            let mut found = None;
            for (axis, row) in self.rows.iter().enumerate() {
                let factor = row.get(input).copied().filter(|factor| *factor != 0.0);
                let Some(step) = factor else { continue };
                let (offset, factors) = row.split_last()?;
                let is_only = factors.iter().filter(|factor| **factor != 0.0).count() == 1;
                if found.is_some() || !is_only {
                    return None;
                }
                found = Some(Step {
                    axis,
                    step,
                    first: *offset,
                });
            }
            found
        };
        (0..self.inputs).map(step).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn transforms_are_applied_in_order() {
        let scale = Affine::scale(&[2.0, 3.0]).unwrap();
        let shift = Affine::translation(&[10.0, 20.0]).unwrap();
        let step = |axis, step, first| Step { axis, step, first };
        let steps = [step(0, 2.0, 10.0), step(1, 3.0, 20.0)];
        assert_eq!(scale.then(&shift).unwrap().steps().unwrap(), steps);
        let steps = [step(0, 2.0, 20.0), step(1, 3.0, 60.0)];
        assert_eq!(shift.then(&scale).unwrap().steps().unwrap(), steps);
        let turned = scale.then(&Affine::permutation(&[1, 0]).unwrap()).unwrap();
        assert_eq!(
            turned.steps().unwrap(),
            [step(1, 2.0, 0.0), step(0, 3.0, 0.0)]
        );
        assert_eq!(turned.row(0).unwrap(), [0.0, 3.0, 0.0]);
    }

    #[test]
    fn rotations_have_no_steps() {
        let turn = Affine::of_rows(vec![vec![0.8, -0.6, 0.0], vec![0.6, 0.8, 0.0]], 2).unwrap();
        assert_eq!(turn.steps(), None);
        let flat = Affine::scale(&[1.0, 0.0]).unwrap();
        assert_eq!(flat.steps(), None);
    }

    #[test]
    fn transforms_that_do_not_fit_are_none() {
        assert_eq!(Affine::of_rows(vec![vec![1.0]], 1), None);
        assert_eq!(Affine::scale(&[f64::NAN]), None);
        assert_eq!(Affine::permutation(&[2, 0]), None);
        assert_eq!(Affine::identity(1000), None);
        let two = Affine::identity(2).unwrap();
        assert_eq!(two.then(&Affine::identity(3).unwrap()), None);
    }
}
