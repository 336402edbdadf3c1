//! A chart of lines against load, as SVG.

/// One line, in a field of its own.
#[derive(Debug)]
pub(crate) struct Panel {
    pub(crate) title: &'static str,
    /// Load and value.
    pub(crate) points: Vec<(f64, f64)>,
}

const WIDTH: f64 = 720.0;
const LEFT: f64 = 56.0;
const RIGHT: f64 = 36.0;
/// Of a panel: above, the line's field, below.
const TITLE: f64 = 36.0;
const FIELD: f64 = 150.0;
const FOOT: f64 = 24.0;
/// Below all panels: what the axis means.
const LEGEND: f64 = 24.0;

/// Colours that are told apart on white as on black.
const STYLE: &str = "text{font:13px sans-serif;fill:#57606a}.t{font-weight:600;fill:#24292f}.g{stroke:#8c959f;\
    stroke-opacity:.35}.l{stroke:#0969da;stroke-width:2;fill:none}.p{fill:#0969da}\
    @media(prefers-color-scheme:dark){text{fill:#9198a1}.t{fill:#f0f6fc}.l{stroke:#4493f8}.p{fill:#4493f8}}";

/// Draws the panels below each other, over one logarithmic axis of load.
pub(crate) fn draw(axis: &str, panels: &[Panel]) -> String {
    let height = panels.len() as f64 * (TITLE + FIELD + FOOT) + LEGEND;
    let mut svg = Vec::new();
    svg.push(format!(
        r#"<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" viewBox="0 0 {WIDTH} {height}">"#
    ));
    svg.push(format!("<style>{STYLE}</style>"));
    let loads = || panels.iter().flat_map(|panel| &panel.points).map(|(load, _)| *load);
    let x = Scale {
        // A load may fall a little short of a power of ten.
        from: (loads().fold(f64::INFINITY, f64::min).log10() + 0.05).floor(),
        to: loads().fold(1.0, f64::max).log10().ceil(),
    };
    for (i, panel) in panels.iter().enumerate() {
        panel.draw(&mut svg, &x, i as f64 * (TITLE + FIELD + FOOT) + TITLE);
    }
    svg.push(format!(
        r#"<text x="{}" y="{}" text-anchor="middle">{axis}</text>"#,
        (LEFT + WIDTH - RIGHT) / 2.0,
        height - 8.0
    ));
    svg.push("</svg>\n".to_owned());
    svg.join("\n")
}

/// An axis of powers of ten.
struct Scale {
    from: f64,
    to: f64,
}

impl Scale {
    fn place(&self, load: f64) -> f64 {
        LEFT + (load.log10() - self.from) / (self.to - self.from) * (WIDTH - LEFT - RIGHT)
    }
}

impl Panel {
    fn draw(&self, svg: &mut Vec<String>, x: &Scale, top: f64) {
        let bottom = top + FIELD;
        let highest = self.points.iter().fold(0.0_f64, |max, (_, value)| max.max(*value));
        let step = step(highest);
        let max = (highest / step).ceil() * step;
        let y = |value: f64| bottom - value / max * FIELD;
        svg.push(format!(
            r#"<text class="t" x="{LEFT}" y="{}">{}</text>"#,
            top - 12.0,
            self.title
        ));
        for i in 0..=(max / step).round() as u32 {
            let value = f64::from(i) * step;
            line(svg, (LEFT, y(value)), (WIDTH - RIGHT, y(value)));
            label(svg, (LEFT - 8.0, y(value) + 4.0), "end", value);
        }
        for power in x.from as i32..=x.to as i32 {
            let load = 10.0_f64.powi(power);
            line(svg, (x.place(load), top), (x.place(load), bottom));
            label(svg, (x.place(load), bottom + 17.0), "middle", load);
        }
        let points = || self.points.iter().map(|(load, value)| (x.place(*load), y(*value)));
        let path: Vec<String> = points().map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
        svg.push(format!(r#"<polyline class="l" points="{}"/>"#, path.join(" ")));
        for (x, y) in points() {
            svg.push(format!(r#"<circle class="p" cx="{x:.1}" cy="{y:.1}" r="3.5"/>"#));
        }
    }
}

/// A round distance between grid lines: about five of them.
fn step(highest: f64) -> f64 {
    let raw = (highest / 4.0).max(1e-9);
    let power = 10.0_f64.powf(raw.log10().floor());
    let factor = [1.0, 2.0, 2.5, 5.0].into_iter().find(|factor| factor * power >= raw);
    factor.unwrap_or(10.0) * power
}

fn line(svg: &mut Vec<String>, (x1, y1): (f64, f64), (x2, y2): (f64, f64)) {
    svg.push(format!(
        r#"<line class="g" x1="{x1:.1}" y1="{y1:.1}" x2="{x2:.1}" y2="{y2:.1}"/>"#
    ));
}

fn label(svg: &mut Vec<String>, (x, y): (f64, f64), anchor: &str, value: f64) {
    let text = thousands(&((value * 100.0).round() / 100.0).to_string());
    svg.push(format!(
        r#"<text x="{x:.1}" y="{y:.1}" text-anchor="{anchor}">{text}</text>"#
    ));
}

/// `100000` as `100,000`.
fn thousands(number: &str) -> String {
    let whole = number.find('.').unwrap_or(number.len());
    let mut text = String::new();
    for (i, digit) in number.chars().enumerate() {
        if i > 0 && i < whole && (whole - i).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}
