//! Draws as an SVG document that stands for itself: no script, no style sheet, nothing from elsewhere, and text of others is escaped.

use std::fmt::Write as _;

use super::{Picture, Station, Wire, wrapped};

/// Characters of a line.
const COLUMNS: usize = 76;
/// Of a character and a line of text, in pixels.
const CELL: (usize, usize) = (8, 18);
const EDGE: usize = 16;
/// Of the column that says where a box is.
const MARGIN: usize = 56;
const PADDING: usize = 8;
/// Between two boxes.
const GAP: usize = 30;
/// Where the wires run, from a box's side.
const WIRE: usize = 32;
const INK: &str = "#1a1a1a";
const WRONG: &str = "#b00020";

/// A drawing under way, and how far down it is.
struct Drawing {
    body: String,
    y: usize,
    width: usize,
}

impl Picture {
    /// The picture as a document.
    pub(in crate::toolkit) fn svg(&self) -> String {
        let longest = |station: &Station| {
            let (lines, marks) = station.wrapped(COLUMNS);
            lines.iter().chain(&marks).map(|line| line.chars().count()).max().unwrap_or_default()
        };
        let columns = self.chains.iter().flat_map(|chain| chain.stations().map(longest)).max().unwrap_or_default();
        let columns = columns.clamp(40, COLUMNS);
        let mut drawing = Drawing { body: String::new(), y: EDGE, width: columns * CELL.0 + 2 * PADDING };
        let across = columns + MARGIN / CELL.0;
        drawing.lines(EDGE, &self.title, across, "bold");
        for remark in &self.remarks {
            drawing.lines(EDGE, remark, across, "normal");
        }
        for chain in &self.chains {
            drawing.y += CELL.1;
            drawing.lines(EDGE, &chain.title, across, "bold");
            drawing.y += PADDING;
            drawing.station(&chain.first, columns);
            for (wire, station) in &chain.rest {
                drawing.wire(wire);
                drawing.station(station, columns);
            }
        }
        let (width, height) = (2 * EDGE + MARGIN + drawing.width, drawing.y + EDGE);
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" viewBox=\"0 0 {width} {height}\" \
             font-family=\"monospace\" font-size=\"13\" role=\"img\">\n<title>{}</title>\n\
             <rect width=\"{width}\" height=\"{height}\" fill=\"#ffffff\"/>\n{}</svg>\n",
            escaped(&self.title),
            drawing.body
        )
    }
}

impl Drawing {
    /// A text at the margin, on as many lines as it needs.
    fn lines(&mut self, x: usize, text: &str, columns: usize, weight: &str) {
        for line in wrapped(text, columns) {
            self.y += CELL.1;
            self.line(x, self.y - 4, &line, INK, weight);
        }
    }

    fn line(&mut self, x: usize, y: usize, text: &str, ink: &str, weight: &str) {
        let text = escaped(text);
        // Writing to a string does not fail, here and below.
        let _ = writeln!(
            self.body,
            "<text x=\"{x}\" y=\"{y}\" fill=\"{ink}\" font-weight=\"{weight}\" xml:space=\"preserve\">{text}</text>"
        );
    }

    fn station(&mut self, station: &Station, columns: usize) {
        let (lines, marks) = station.wrapped(columns);
        let height = (lines.len() + marks.len()) * CELL.1 + PADDING;
        let (x, y, width) = (EDGE + MARGIN, self.y, self.width);
        let ink = if marks.is_empty() { INK } else { WRONG };
        let _ = writeln!(
            self.body,
            "<rect x=\"{x}\" y=\"{y}\" width=\"{width}\" height=\"{height}\" rx=\"4\" fill=\"#f6f6f6\" stroke=\"{ink}\"/>"
        );
        self.line(EDGE, y + CELL.1 - 4, station.place, INK, "bold");
        let inked = lines.iter().map(|line| (line, INK)).chain(marks.iter().map(|mark| (mark, WRONG)));
        for (place, (line, ink)) in inked.enumerate() {
            self.line(x + PADDING, y + (place + 1) * CELL.1, line, ink, "normal");
        }
        self.y += height;
    }

    fn wire(&mut self, wire: &Wire) {
        let (x, top, bottom) = (EDGE + MARGIN + WIRE, self.y, self.y + GAP);
        let (ink, dashes) = if wire.broken { (WRONG, " stroke-dasharray=\"3 4\"") } else { (INK, "") };
        let _ =
            writeln!(self.body, "<line x1=\"{x}\" y1=\"{top}\" x2=\"{x}\" y2=\"{bottom}\" stroke=\"{ink}\"{dashes}/>");
        self.line(x + PADDING, top + GAP / 2 + 4, wire.label, ink, "normal");
        self.y = bottom;
    }
}

fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&apos;"),
            c => escaped.push(c),
        }
    }
    escaped
}
