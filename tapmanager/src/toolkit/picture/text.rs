//! Draws with lines of text, at most [`WIDTH`] columns wide.

use super::{Chain, Picture, Station, Wire, wrapped};

const WIDTH: usize = 80;
/// Of the column that says where a box is.
const MARGIN: usize = 7;
/// Of what is in a box: two sides and two spaces are around it.
const INSIDE: usize = WIDTH - MARGIN - 4;
/// Where the wires run, in columns from a box's side.
const WIRE: usize = 4;

/// What lines are made of.
struct Signs {
    top: [char; 2],
    bottom: [char; 2],
    /// Where a wire leaves the bottom of a box and enters the top of the next.
    knots: [char; 2],
    across: char,
    down: char,
    broken: char,
}

const BOX_DRAWING: Signs = Signs {
    top: ['\u{250c}', '\u{2510}'],
    bottom: ['\u{2514}', '\u{2518}'],
    knots: ['\u{252c}', '\u{2534}'],
    across: '\u{2500}',
    down: '\u{2502}',
    broken: '\u{2573}',
};
const ASCII: Signs =
    Signs { top: ['+', '+'], bottom: ['+', '+'], knots: ['+', '+'], across: '-', down: '|', broken: 'X' };

impl Picture {
    /// The picture as text. With `ascii` it has nothing else.
    pub(in crate::toolkit) fn text(&self, ascii: bool) -> String {
        let signs = if ascii { &ASCII } else { &BOX_DRAWING };
        let mut lines = wrapped(&self.title, WIDTH);
        lines.extend(self.remarks.iter().flat_map(|remark| wrapped(remark, WIDTH)));
        for chain in &self.chains {
            lines.push(String::new());
            lines.extend(wrapped(&chain.title, WIDTH));
            draw(chain, signs, &mut lines);
        }
        let mut text = String::new();
        for line in lines {
            let line = line.trim_end();
            text.extend(line.chars().map(|c| if ascii && !c.is_ascii() { '?' } else { c }));
            text.push('\n');
        }
        text
    }
}

fn draw(chain: &Chain, signs: &Signs, out: &mut Vec<String>) {
    let longest = |station: &Station| {
        let (lines, marks) = station.wrapped(INSIDE);
        lines.iter().chain(&marks).map(|line| line.chars().count()).max().unwrap_or_default()
    };
    let inside = chain.stations().map(longest).max().unwrap_or_default().clamp(WIRE + 2, INSIDE);
    let last = chain.rest.len();
    for (place, station) in chain.stations().enumerate() {
        if let Some((wire, _)) = place.checked_sub(1).and_then(|place| chain.rest.get(place)) {
            draw_wire(wire, signs, out);
        }
        let (lines, marks) = station.wrapped(inside);
        out.push(edge(station.place, signs.top, (place > 0).then_some(signs.knots[1]), signs, inside));
        for line in lines.iter().chain(&marks) {
            let fill = inside - line.chars().count().min(inside);
            out.push(format!("{:MARGIN$}{} {line}{} {}", "", signs.down, " ".repeat(fill), signs.down));
        }
        out.push(edge("", signs.bottom, (place < last).then_some(signs.knots[0]), signs, inside));
    }
}

fn draw_wire(wire: &Wire, signs: &Signs, out: &mut Vec<String>) {
    let sign = if wire.broken { signs.broken } else { signs.down };
    out.push(format!("{:indent$}{sign} {}", "", wire.label, indent = MARGIN + WIRE));
}

/// The top or the bottom of a box, with a wire if `knot` is one.
fn edge(place: &str, [left, right]: [char; 2], knot: Option<char>, signs: &Signs, inside: usize) -> String {
    let across = |count: usize| signs.across.to_string().repeat(count);
    // Its corners, and a space at each side of what is in it.
    let length = inside + 2;
    let line = match knot {
        Some(knot) => format!("{}{knot}{}", across(WIRE - 1), across(length - WIRE)),
        None => across(length),
    };
    format!("{place:MARGIN$}{left}{line}{right}")
}
