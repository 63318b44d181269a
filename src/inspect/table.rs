//! The table of `zarrfs tree`. On a terminal, the cells of each block of rows are aligned in columns that fit
//! the width of the terminal. Blocks appear during the walk, even if the source is slow or endless.
//! In a pipe, every row is written immediately, and its complete cells are separated by two spaces.

use std::io::{self, IsTerminal, Write};
use std::time::{Duration, Instant};

use anstyle::Style;

use super::output::{PROBLEM, SYMBOL, printable};

/// The largest number of rows in a block.
const MAX_ROWS: usize = 200;
/// The largest delay of a block.
const MAX_WAIT: Duration = Duration::from_millis(500);
/// The largest width of a column. A wider name shifts the rest of its row.
const MAX_WIDTH: usize = 48;
/// The spaces between columns.
const GAP: usize = 2;

/// The columns: the name, and the cells of an array.
const NAME: usize = 0;
const TYPE: usize = 1;
const UNITS: usize = 2;
const CHUNKS: usize = 3;
const CODECS: usize = 4;
const STORED: usize = 6;
/// The smallest widths of the codecs, of the units, and of the type with the dimensions.
const MIN_CODECS: usize = 8;
const MIN_UNITS: usize = 8;
const MIN_TYPE: usize = 16;

/// A row of the table. A row of one cell, such as that of a group, has no columns.
#[derive(Debug, Default)]
pub(super) struct Row {
    /// The tree symbols before the name.
    pub(super) symbols: String,
    pub(super) name: String,
    /// The style of the name.
    pub(super) style: Style,
    pub(super) cells: Vec<String>,
    /// Problems and irregularities of the node.
    pub(super) notes: Vec<String>,
}

impl Row {
    /// Creates a row of one cell.
    pub(super) fn of_cell(style: Style, cell: &str) -> Self {
        Self {
            style,
            cells: vec![cell.to_owned()],
            ..Self::default()
        }
    }

    fn name_width(&self) -> usize {
        width(&self.symbols) + width(&self.name)
    }

    fn column_width(&self, column: usize) -> usize {
        match (column.checked_sub(1), self.cells.as_slice()) {
            (None, _) => self.name_width(),
            (Some(_), [_]) => 0,
            (Some(cell), cells) => cells.get(cell).map_or(0, |cell| width(cell)),
        }
    }

    /// Writes the row with columns of these widths, without columns of width 0. Without widths,
    /// empty cells are left out.
    fn write(&self, out: &mut impl Write, widths: &[usize]) -> io::Result<()> {
        let (symbols, name, style) = (&self.symbols, &self.name, self.style);
        write!(out, "{SYMBOL}{symbols}{SYMBOL:#}{style}{name}{style:#}")?;
        let name_width = widths.first().copied().unwrap_or(0);
        let padding = name_width.saturating_sub(self.name_width());
        let mut text = " ".repeat(padding);
        for (column, cell) in self.cells.iter().enumerate() {
            match widths.get(column + 1) {
                None if cell.is_empty() => {}
                None => text.push_str(&format!("  {cell}")),
                Some(0) if self.cells.len() > 1 => {}
                Some(width) if self.cells.len() > 1 => {
                    let cell = fitted(cell, *width);
                    text.push_str(&format!("  {cell:<width$}"));
                }
                Some(_) => text.push_str(&format!("  {cell}")),
            }
        }
        write!(out, "{}", text.trim_end())?;
        for note in &self.notes {
            write!(out, "  {PROBLEM}! {note}{PROBLEM:#}")?;
        }
        writeln!(out)
    }
}

/// Returns a text of at most `width` characters, which ends with an ellipsis if it was cut.
fn fitted(text: &str, width: usize) -> String {
    if self::width(text) <= width {
        return text.to_owned();
    }
    let kept = text.chars().take(width.saturating_sub(3));
    kept.chain("...".chars()).take(width).collect()
}

/// Narrows columns until a row has at most `total` characters: first the codecs and the units. Then
/// chunks, stored size, codecs and units are left out, and the dimensions are cut.
fn fit(widths: &mut [usize], total: usize) {
    let wanted = widths.to_vec();
    let left_out = [CHUNKS, STORED, CODECS, UNITS];
    for count in 0..=left_out.len() {
        widths.copy_from_slice(&wanted);
        for column in left_out.iter().take(count) {
            if let Some(width) = widths.get_mut(*column) {
                *width = 0;
            }
        }
        for (column, least) in [(CODECS, MIN_CODECS), (UNITS, MIN_UNITS)] {
            narrow(widths, column, least, total);
        }
        if used(widths) <= total {
            return;
        }
    }
    narrow(widths, TYPE, MIN_TYPE, total);
}

/// Narrows a column to the space that `total` leaves, but not below `least`.
fn narrow(widths: &mut [usize], column: usize, least: usize, total: usize) {
    let excess = used(widths).saturating_sub(total);
    if let Some(width) = widths.get_mut(column) {
        *width = width.saturating_sub(excess).max(least.min(*width));
    }
}

/// Returns the width of a row.
fn used(widths: &[usize]) -> usize {
    let columns = widths.iter().enumerate();
    columns.fold(0, |sum, (column, width)| match (column, width) {
        (NAME, width) => sum + width,
        (_, 0) => sum,
        (_, width) => sum + GAP + width,
    })
}

/// The rows that are not yet written to standard output.
#[derive(Debug)]
pub(super) struct Table {
    is_aligned: bool,
    /// The width of the terminal, if known.
    width: Option<usize>,
    rows: Vec<Row>,
    block_start: Option<Instant>,
}

impl Table {
    pub(super) fn of_stdout() -> Self {
        Self {
            is_aligned: io::stdout().is_terminal(),
            width: terminal_size::terminal_size_of(io::stdout()).map(|(width, _)| width.0.into()),
            rows: Vec::new(),
            block_start: None,
        }
    }

    /// Appends a row, with its texts escaped for a terminal.
    pub(super) fn push(&mut self, out: &mut impl Write, mut row: Row) -> io::Result<()> {
        let texts = row.cells.iter_mut().chain(&mut row.notes);
        for text in texts.chain([&mut row.name]) {
            *text = printable(text).into_owned();
        }
        if !self.is_aligned {
            return row.write(out, &[]);
        }
        self.rows.push(row);
        let block_start = *self.block_start.get_or_insert_with(Instant::now);
        match self.rows.len() >= MAX_ROWS || block_start.elapsed() >= MAX_WAIT {
            true => self.flush(out),
            false => Ok(()),
        }
    }

    /// Writes the rows of the current block.
    pub(super) fn flush(&mut self, out: &mut impl Write) -> io::Result<()> {
        let rows = std::mem::take(&mut self.rows);
        self.block_start = None;
        let columns = rows.iter().map(|row| row.cells.len() + 1).max();
        let width = |column| {
            let widths = rows.iter().map(|row| row.column_width(column));
            widths.map(|width| width.min(MAX_WIDTH)).max()
        };
        let mut widths: Vec<usize> = (0..columns.unwrap_or(0)).filter_map(width).collect();
        if let Some(total) = self.width {
            fit(&mut widths, total);
        }
        for row in &rows {
            row.write(out, &widths)?;
        }
        out.flush()
    }
}

/// Returns the number of characters, which for most texts is the width on a terminal.
fn width(text: &str) -> usize {
    text.chars().count()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(name: &str, cells: &[&str]) -> Row {
        Row {
            symbols: "|-- ".into(),
            name: name.into(),
            cells: cells.iter().map(|cell| (*cell).to_owned()).collect(),
            notes: vec!["odd".into()],
            ..Row::default()
        }
    }

    fn written(is_aligned: bool, width: Option<usize>, rows: Vec<Row>) -> Vec<String> {
        let mut table = Table::of_stdout();
        (table.is_aligned, table.width) = (is_aligned, width);
        let mut out = Vec::new();
        for row in rows {
            table.push(&mut out, row).unwrap();
        }
        table.flush(&mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        let text = anstream::adapter::strip_str(&text).to_string();
        text.lines().map(str::to_owned).collect()
    }

    fn rows() -> Vec<Row> {
        let mut group = Row::of_cell(Style::new(), "(group)");
        group.name = "root".into();
        vec![
            group,
            row("a", &["int8 (1)", "", "4 B"]),
            row("long", &["uint8 (x 2)", "K", "40 KiB"]),
            row("x\u{1b}", &["float64 (1, 2)", "", "1 B"]),
        ]
    }

    #[test]
    fn cells_are_aligned_on_a_terminal_and_separated_by_two_spaces_in_a_pipe() {
        let aligned = [
            "root         (group)",
            "|-- a        int8 (1)           4 B  ! odd",
            "|-- long     uint8 (x 2)     K  40 KiB  ! odd",
            r"|-- x\u{1b}  float64 (1, 2)     1 B  ! odd",
        ];
        assert_eq!(written(true, None, rows()), aligned);
        let plain = [
            "root  (group)",
            "|-- a  int8 (1)  4 B  ! odd",
            "|-- long  uint8 (x 2)  K  40 KiB  ! odd",
            r"|-- x\u{1b}  float64 (1, 2)  1 B  ! odd",
        ];
        assert_eq!(written(false, Some(20), rows()), plain);
    }

    fn arrays() -> Vec<Row> {
        let cells = [
            "float32 (time 60, lat 90, lon 180)",
            "degC",
            "chunks (20, 30, 60)",
            "sharding_indexed([1, 16, 32]: bytes | zstd)",
            "3.7 MiB",
            "1.0 MiB stored (3.71)",
        ];
        let mut row = row("sst", &cells);
        row.notes.clear();
        vec![row]
    }

    #[test]
    fn long_units_are_cut_before_they_are_left_out() {
        let mut widths = vec![20, 34, 21, 19, 43, 8, 20];
        fit(&mut widths, 80);
        assert_eq!(widths, [20, 34, 12, 0, 0, 8, 0]);
    }

    #[test]
    fn a_row_fits_the_terminal() {
        for (width, expected) in [
            (
                160,
                "|-- sst  float32 (time 60, lat 90, lon 180)  degC  chunks (20, 30, 60)  \
                 sharding_indexed([1, 16, 32]: bytes | zstd)  3.7 MiB  1.0 MiB stored (3.71)",
            ),
            (
                130,
                "|-- sst  float32 (time 60, lat 90, lon 180)  degC  chunks (20, 30, 60)  \
                 sharding_indexed([1, 16...  3.7 MiB  1.0 MiB stored (3.71)",
            ),
            (
                100,
                "|-- sst  float32 (time 60, lat 90, lon 180)  degC  sharding_index...  3.7 MiB  \
                 1.0 MiB stored (3.71)",
            ),
            (
                80,
                "|-- sst  float32 (time 60, lat 90, lon 180)  degC  sharding_indexed(...  3.7 MiB",
            ),
            (40, "|-- sst  float32 (time 60, l...  3.7 MiB"),
        ] {
            let lines = written(true, Some(width), arrays());
            assert!(lines[0].chars().count() <= width, "{width}: {lines:?}");
            assert_eq!(lines[0], expected, "{width}");
        }
    }
}
