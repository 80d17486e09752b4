//! Shapes and texts as SVG elements. All coordinates are rounded to a tenth.

/// Position of a point: right and down, in the units of the drawing.
pub type Point = (f64, f64);

/// Side of a text that is at its point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Anchor {
    /// The text begins there.
    Start,
    /// The text is centred there.
    Middle,
    /// The text ends there.
    End,
}

impl Anchor {
    const fn name(self) -> &'static str {
        match self {
            Self::Start => "start",
            Self::Middle => "middle",
            Self::End => "end",
        }
    }
}

/// Shape of a mark, so that series differ by more than their colours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// Circle.
    Circle,
    /// Square on its corner.
    Diamond,
    /// Square on its side.
    Square,
    /// Triangle on its side.
    Triangle,
}

impl Shape {
    /// All shapes, in the order in which series use them.
    pub const ALL: [Self; 4] = [Self::Circle, Self::Diamond, Self::Square, Self::Triangle];

    /// Corners around the centre of a mark of size 1; none of a circle.
    const fn corners(self) -> &'static [Point] {
        match self {
            Self::Circle => &[],
            Self::Diamond => &[(0.0, -1.2), (1.2, 0.0), (0.0, 1.2), (-1.2, 0.0)],
            Self::Square => &[(-1.0, -1.0), (1.0, -1.0), (1.0, 1.0), (-1.0, 1.0)],
            Self::Triangle => &[(0.0, -1.2), (1.1, 0.9), (-1.1, 0.9)],
        }
    }
}

/// Elements of a drawing, in the order in which they are drawn.
#[derive(Clone, Debug, Default)]
pub struct Drawing {
    body: String,
}

impl Drawing {
    /// Writes a text.
    pub fn text(&mut self, class: &str, (x, y): Point, anchor: Anchor, text: &str) {
        let (anchor, text) = (anchor.name(), escaped(text));
        self.body += &format!(
            "<text class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{text}</text>\n"
        );
    }

    /// Draws a straight line.
    pub fn line(&mut self, class: &str, (x1, y1): Point, (x2, y2): Point) {
        self.body += &format!(
            "<line class=\"{class}\" x1=\"{x1:.1}\" y1=\"{y1:.1}\" x2=\"{x2:.1}\" y2=\"{y2:.1}\"/>\n"
        );
    }

    /// Draws a rectangle with slightly rounded corners, of a width and a height.
    pub fn rectangle(&mut self, class: &str, (x, y): Point, (width, height): (f64, f64)) {
        self.body += &format!(
            "<rect class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\" rx=\"1.5\"/>\n"
        );
    }

    /// Draws straight lines from point to point.
    pub fn polyline(&mut self, class: &str, points: &[Point]) {
        self.body += &format!("<polyline class=\"{class}\" points=\"{}\"/>\n", listed(points));
    }

    /// Draws a filled polygon.
    pub fn polygon(&mut self, class: &str, corners: &[Point]) {
        self.body += &format!("<polygon class=\"{class}\" points=\"{}\"/>\n", listed(corners));
    }

    /// Draws a path, given in SVG's own language.
    pub fn path(&mut self, class: &str, path: &str) {
        self.body += &format!("<path class=\"{class}\" d=\"{path}\"/>\n");
    }

    /// Draws a mark; `size` is about half of its width.
    pub fn mark(&mut self, class: &str, shape: Shape, (x, y): Point, size: f64) {
        let corner = |(dx, dy): &Point| (x + dx * size, y + dy * size);
        match shape {
            Shape::Circle => {
                self.body +=
                    &format!("<circle class=\"{class}\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"{size:.1}\"/>\n");
            }
            _ => self.polygon(class, &shape.corners().iter().map(corner).collect::<Vec<_>>()),
        }
    }

    /// Draws with this point as the origin.
    pub fn translated(&mut self, (x, y): Point, draw: impl FnOnce(&mut Self)) {
        self.body += &format!("<g transform=\"translate({x},{y})\">\n");
        draw(self);
        self.body += "</g>\n";
    }

    /// Appends another drawing.
    pub fn append(&mut self, other: &Self) {
        self.body += &other.body;
    }

    /// Elements as text, to be put into an `<svg>` element.
    pub fn elements(&self) -> &str {
        &self.body
    }
}

fn listed(points: &[Point]) -> String {
    points.iter().map(|(x, y)| format!("{x:.1},{y:.1}")).collect::<Vec<_>>().join(" ")
}

/// Escapes a text for XML and HTML, within elements and within attributes.
pub fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_no_markup() {
        assert_eq!(escaped("a < b & \"c\">"), "a &lt; b &amp; &quot;c&quot;&gt;");
        let mut drawing = Drawing::default();
        drawing.text("soft", (1.0, 2.25), Anchor::End, "<b>");
        let expected = "<text class=\"soft\" x=\"1.0\" y=\"2.2\" text-anchor=\"end\">&lt;b&gt;</text>\n";
        assert_eq!(drawing.elements(), expected);
    }

    #[test]
    fn marks_are_around_their_points() {
        for shape in Shape::ALL {
            let mut drawing = Drawing::default();
            drawing.mark("m", shape, (100.0, 50.0), 10.0);
            let expected = match shape {
                Shape::Circle => "<circle class=\"m\" cx=\"100.0\" cy=\"50.0\" r=\"10.0\"/>\n",
                Shape::Diamond => {
                    "<polygon class=\"m\" points=\"100.0,38.0 112.0,50.0 100.0,62.0 88.0,50.0\"/>\n"
                }
                Shape::Square => {
                    "<polygon class=\"m\" points=\"90.0,40.0 110.0,40.0 110.0,60.0 90.0,60.0\"/>\n"
                }
                Shape::Triangle => "<polygon class=\"m\" points=\"100.0,38.0 111.0,59.0 89.0,59.0\"/>\n",
            };
            assert_eq!(drawing.elements(), expected);
        }
    }

    #[test]
    fn translated_drawings_are_groups() {
        let mut drawing = Drawing::default();
        drawing.translated((3.0, 4.5), |inner| inner.path("p", "M0,0H9"));
        assert_eq!(
            drawing.elements(),
            "<g transform=\"translate(3,4.5)\">\n<path class=\"p\" d=\"M0,0H9\"/>\n</g>\n"
        );
    }
}
