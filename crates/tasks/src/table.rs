//! Tables for the terminal and for Markdown.

/// A table: a row of headings and rows of as many cells. All columns but the first are numbers.
#[derive(Default)]
pub struct Table {
    rows: Vec<Vec<String>>,
}

impl Table {
    /// A table with these headings.
    pub fn new(headings: &[&str]) -> Self {
        Self { rows: vec![headings.iter().map(ToString::to_string).collect()] }
    }

    /// Adds a row.
    pub fn row(&mut self, cells: Vec<String>) {
        self.rows.push(cells);
    }

    /// Aligned columns, as a terminal shows them.
    pub fn text(&self) -> String {
        let widths = self.widths();
        let line = |row: &Vec<String>| {
            let cells = row.iter().zip(&widths).enumerate().map(|(column, (cell, &width))| {
                if column == 0 { format!("{cell:<width$}") } else { format!("{cell:>width$}") }
            });
            format!("  {}\n", cells.collect::<Vec<_>>().join("  ").trim_end())
        };
        self.rows.iter().map(line).collect()
    }

    /// A Markdown table.
    pub fn markdown(&self) -> String {
        let line = |row: &Vec<String>| format!("| {} |\n", row.join(" | "));
        let mut text = String::new();
        for (index, row) in self.rows.iter().enumerate() {
            text += &line(row);
            if index == 0 {
                text += &format!("|---|{}\n", "--:|".repeat(row.len().saturating_sub(1)));
            }
        }
        text
    }

    fn widths(&self) -> Vec<usize> {
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or(0);
        let width = |column: usize| {
            self.rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max()
        };
        (0..columns).map(|column| width(column).unwrap_or(0)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let mut table = Table::new(&["size", "count"]);
        table.row(vec!["16".into(), "1,024".into()]);
        assert_eq!(table.text(), "  size  count\n  16    1,024\n");
        assert_eq!(table.markdown(), "| size | count |\n|---|--:|\n| 16 | 1,024 |\n");
    }
}
