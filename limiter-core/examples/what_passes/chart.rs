//! A picture over time: what comes, what passes, and how much passed within a window.

/// What is drawn; times in ms.
#[derive(Debug)]
pub(crate) struct Picture {
    pub(crate) title: String,
    pub(crate) span_ms: u64,
    /// When requests come, and when those go on that pass; in any order.
    pub(crate) come: Vec<u64>,
    pub(crate) pass: Vec<u64>,
    /// What passed is added up over this time, and compared with this quota.
    pub(crate) below: &'static str,
    pub(crate) window_ms: u64,
    pub(crate) quota: u64,
}

const WIDTH: f64 = 720.0;
const LEFT: f64 = 48.0;
const RIGHT: f64 = 16.0;
/// Of a panel: above, its field, below.
const TITLE: f64 = 34.0;
const FIELD: f64 = 110.0;
const FOOT: f64 = 24.0;
const PANEL: f64 = TITLE + FIELD + FOOT;
/// Requests of as long a time share a bar.
const BAR_MS: u64 = 100;
/// The top of either panel, the same in all pictures, so that they can be compared.
const MOST_COME: f64 = 30.0;
const MOST_WITHIN: f64 = 40.0;

/// Colours that are told apart on white as on black.
const STYLE: &str = "text{font:13px sans-serif;fill:#57606a}.t{font-weight:600;fill:#24292f}.g{stroke:#8c959f;\
    stroke-opacity:.35}.q{stroke:#cf222e;stroke-dasharray:4 3}.c{fill:#8c959f;fill-opacity:.45}\
    .p{fill:#0969da}.l{stroke:#0969da;stroke-width:2;fill:none}@media(prefers-color-scheme:dark){text{fill:#9198a1}\
    .t{fill:#f0f6fc}.q{stroke:#f85149}.p{fill:#4493f8}.l{stroke:#4493f8}}";

impl Picture {
    /// As SVG.
    pub(crate) fn draw(&self) -> String {
        let height = 2.0 * PANEL;
        let mut svg = vec![
            format!(
                r#"<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" viewBox="0 0 {WIDTH} {height}">"#
            ),
            format!("<title>{}: what passes over time</title>", self.title),
            format!("<style>{STYLE}</style>"),
        ];
        self.bars(&mut svg, TITLE);
        self.sums(&mut svg, PANEL + TITLE);
        svg.push("</svg>\n".to_owned());
        svg.join("\n")
    }

    /// What comes, and in front of it what passes.
    fn bars(&self, svg: &mut Vec<String>, top: f64) {
        let y = self.field(svg, top, &self.title, MOST_COME, 10);
        let legend = "grey: come, blue: pass, each 0.1 s";
        svg.push(label((WIDTH - RIGHT, top - 12.0), "end", legend));
        let width = self.x(BAR_MS) - self.x(0) - 1.0;
        for (class, times) in [("c", &self.come), ("p", &self.pass)] {
            for from in (0..self.span_ms).step_by(usize::try_from(BAR_MS).unwrap_or(1)) {
                let count = times.iter().filter(|&&at| (from..from + BAR_MS).contains(&at)).count();
                if count > 0 {
                    let (x, y) = (self.x(from), y(count as f64));
                    let height = top + FIELD - y;
                    svg.push(format!(
                        r#"<rect class="{class}" x="{x:.1}" y="{y:.1}" width="{width:.1}" height="{height:.1}"/>"#
                    ));
                }
            }
        }
    }

    /// How many passed within a window that ends at each moment.
    fn sums(&self, svg: &mut Vec<String>, top: f64) {
        let y = self.field(svg, top, self.below, MOST_WITHIN, 10);
        let quota = y(self.quota as f64);
        svg.push(line("q", (LEFT, quota), (WIDTH - RIGHT, quota)));
        let within = |end: u64| {
            let begin = end.saturating_sub(self.window_ms);
            let is_within = |&&at: &&u64| at <= end && (at > begin || end < self.window_ms);
            self.pass.iter().filter(is_within).count() as f64
        };
        let mut points = String::new();
        let mut before = f64::NAN;
        for at in (0..=self.span_ms).step_by(10) {
            let now = within(at);
            // A corner on each side of a step, and nothing between them.
            if now.total_cmp(&before).is_ne() || at == self.span_ms {
                let x = self.x(at);
                if !before.is_nan() {
                    points += &format!("{x:.1},{:.1} ", y(before));
                }
                points += &format!("{x:.1},{:.1} ", y(now));
                before = now;
            }
        }
        svg.push(format!(r#"<polyline class="l" points="{}"/>"#, points.trim_end()));
    }

    /// The frame of a panel; gives the place of a value in it.
    fn field(&self, svg: &mut Vec<String>, top: f64, title: &str, most: f64, step: u32) -> impl Fn(f64) -> f64 + use<> {
        let y = move |value: f64| top + FIELD - value / most * FIELD;
        svg.push(format!(
            r#"<text class="t" x="{LEFT}" y="{}">{title}</text>"#,
            top - 12.0
        ));
        for value in (0..).map(|i| i * step).take_while(|value| f64::from(*value) <= most) {
            let at = y(f64::from(value));
            svg.push(line("g", (LEFT, at), (WIDTH - RIGHT, at)));
            svg.push(label((LEFT - 8.0, at + 4.0), "end", &value.to_string()));
        }
        for second in 0..=self.span_ms / 1000 {
            let x = self.x(second * 1000);
            svg.push(line("g", (x, top), (x, top + FIELD)));
            svg.push(label((x, top + FIELD + 17.0), "middle", &format!("{second} s")));
        }
        y
    }

    fn x(&self, at_ms: u64) -> f64 {
        LEFT + at_ms as f64 / self.span_ms as f64 * (WIDTH - LEFT - RIGHT)
    }
}

fn line(class: &str, (x1, y1): (f64, f64), (x2, y2): (f64, f64)) -> String {
    format!(r#"<line class="{class}" x1="{x1:.1}" y1="{y1:.1}" x2="{x2:.1}" y2="{y2:.1}"/>"#)
}

fn label((x, y): (f64, f64), anchor: &str, text: &str) -> String {
    format!(r#"<text x="{x:.1}" y="{y:.1}" text-anchor="{anchor}">{text}</text>"#)
}
