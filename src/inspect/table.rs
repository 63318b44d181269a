//! The table of `zarrfs tree`. On a terminal, rows are collected in blocks and their cells aligned in
//! columns, so that a slow or endless source is shown while it is walked. In a pipe, every row is
//! written at once and its cells are separated by two spaces.

use std::io::{self, IsTerminal, Write};
use std::time::{Duration, Instant};

use anstyle::Style;

use super::output::{PROBLEM, SYMBOL, printable};

/// Rows of one block.
const MAX_ROWS: usize = 200;
/// The longest time until a block is written.
const MAX_WAIT: Duration = Duration::from_millis(500);
/// The widest column; wider cells shift the rest of their row.
const MAX_WIDTH: usize = 48;

/// A row of the table. A row of one cell, such as that of a group, has no columns.
#[derive(Debug, Default)]
pub(super) struct Row {
    /// The tree symbols before the name.
    pub(super) symbols: String,
    pub(super) name: String,
    /// The style of the name.
    pub(super) style: Style,
    pub(super) cells: Vec<String>,
    /// Problems and oddities.
    pub(super) notes: Vec<String>,
}

impl Row {
    /// Returns a row of one cell.
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

    /// Writes the row with columns of these widths; without widths, empty cells are left out.
    fn write(&self, out: &mut impl Write, widths: &[usize]) -> io::Result<()> {
        let (symbols, name, style) = (&self.symbols, &self.name, self.style);
        write!(out, "{SYMBOL}{symbols}{SYMBOL:#}{style}{name}{style:#}")?;
        let name_width = widths.first().copied().unwrap_or(0);
        let padding = name_width.saturating_sub(self.name_width());
        let mut text = " ".repeat(padding);
        for (column, cell) in self.cells.iter().enumerate() {
            let width = widths.get(column + 1).copied().unwrap_or(0);
            if !cell.is_empty() || !widths.is_empty() {
                text.push_str(&format!("  {cell:<width$}"));
            }
        }
        write!(out, "{}", text.trim_end())?;
        for note in &self.notes {
            write!(out, "  {PROBLEM}! {note}{PROBLEM:#}")?;
        }
        writeln!(out)
    }
}

/// Rows on their way to standard output.
#[derive(Debug)]
pub(super) struct Table {
    is_aligned: bool,
    rows: Vec<Row>,
    block_start: Option<Instant>,
}

impl Table {
    pub(super) fn of_stdout() -> Self {
        Self {
            is_aligned: io::stdout().is_terminal(),
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
            widths.filter(|width| *width <= MAX_WIDTH).max()
        };
        let widths: Vec<usize> = (0..columns.unwrap_or(0)).filter_map(width).collect();
        for row in &rows {
            row.write(out, &widths)?;
        }
        out.flush()
    }
}

/// Returns the number of characters, which is the width of most texts on a terminal.
fn width(text: &str) -> usize {
    text.chars().count()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(name: &str, cells: [&str; 3]) -> Row {
        Row {
            symbols: "|-- ".into(),
            name: name.into(),
            cells: cells.map(str::to_owned).to_vec(),
            notes: vec!["odd".into()],
            ..Row::default()
        }
    }

    fn written(is_aligned: bool) -> String {
        let mut table = Table::of_stdout();
        table.is_aligned = is_aligned;
        let mut out = Vec::new();
        let mut group = Row::of_cell(Style::new(), "(group)");
        group.name = "root".into();
        let rows = [
            group,
            row("a", ["<f4", "(1)", "4 B"]),
            row("long", ["|u1", "", "40 KiB"]),
            row("x\u{1b}", ["<f8", "(1, 2)", "1 B"]),
        ];
        for row in rows {
            table.push(&mut out, row).unwrap();
        }
        table.flush(&mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        anstream::adapter::strip_str(&text).to_string()
    }

    #[test]
    fn cells_are_aligned_on_a_terminal_and_separated_by_two_spaces_in_a_pipe() {
        let aligned = [
            "root         (group)",
            "|-- a        <f4  (1)     4 B  ! odd",
            "|-- long     |u1          40 KiB  ! odd",
            r"|-- x\u{1b}  <f8  (1, 2)  1 B  ! odd",
            "",
        ];
        assert_eq!(written(true), aligned.join("\n"));
        let plain = "root  (group)\n|-- a  <f4  (1)  4 B  ! odd\n|-- long  |u1  40 KiB  ! odd\n\
                     |-- x\\u{1b}  <f8  (1, 2)  1 B  ! odd\n";
        assert_eq!(written(false), plain);
    }
}
