//! Charts of a time, with bars on each other or with lines, and histograms. Each has its numbers in a table below it, for
//! those who cannot see it.

use maud::{Markup, html};

/// The size of a chart in the units of its picture, which is stretched to the page.
const WIDTH: u64 = 1_000;
const HEIGHT: u64 = 200;

/// The least height of a bar: nothing that happened is invisible.
const LEAST_HEIGHT: u64 = 2;

/// The values of one kind, by step; none where a step has none.
pub(crate) struct Series {
    /// The name.
    pub(crate) name: String,
    /// The class in the style sheet that gives it its colour.
    pub(crate) class: &'static str,
    /// The values.
    pub(crate) values: Vec<Option<u64>>,
}

/// The labels of a chart.
pub(crate) struct Labels<'l> {
    /// The title.
    pub(crate) title: &'l str,
    /// The description of the picture in a sentence.
    pub(crate) text: String,
    /// The greatest value, as people read it.
    pub(crate) most: String,
    /// The beginning and the end of the axis below it.
    pub(crate) ends: [String; 2],
}

/// Returns a chart of bars: in each step, the values of all series on each other.
pub(crate) fn bars(labels: &Labels<'_>, series: &[Series]) -> Markup {
    figure(labels, series, &bar_shapes(series))
}

/// Returns a histogram: a bar for each range, and a line at `limit`, which is in thousandths of a range.
pub(crate) fn histogram(labels: &Labels<'_>, ranges: &Series, limit: u64) -> Markup {
    let series = std::slice::from_ref(ranges);
    let x = scale(limit, 1_000 * steps_of(series) as u64, WIDTH);
    let shapes = html! {
        (bar_shapes(series))
        line.limit x1=(x) y1="0" x2=(x) y2=(HEIGHT) vector-effect="non-scaling-stroke" {}
    };
    figure(labels, series, &shapes)
}

fn bar_shapes(series: &[Series]) -> Markup {
    let steps = steps_of(series);
    let most = (0..steps).map(|step| height(series, step)).max().unwrap_or(0);
    let left = |step: usize| scale(step as u64, steps as u64, WIDTH);
    html! {
        @for step in 0..steps {
            @let width = left(step + 1).saturating_sub(left(step)).max(2) - 1;
            @for (at, one) in series.iter().enumerate().filter(|(_, one)| value(one, step) > 0) {
                @let below = height(series.get(..at).unwrap_or_default(), step);
                @let (bottom, top) = (scale(below, most, HEIGHT), scale(below.saturating_add(value(one, step)), most, HEIGHT));
                @let height = (top - bottom).max(LEAST_HEIGHT);
                rect class=(one.class) x=(left(step)) y=(HEIGHT.saturating_sub(bottom + height)) width=(width) height=(height) {}
            }
        }
    }
}

/// Returns a chart of lines, each through the values of one series, by their order of magnitude: twice the value is always
/// the same distance higher. A step without a value interrupts the line.
pub(crate) fn lines(labels: &Labels<'_>, series: &[Series]) -> Markup {
    let steps = steps_of(series);
    let values = || series.iter().flat_map(|one| one.values.iter().flatten().copied());
    let least = magnitude(values().min().unwrap_or(0));
    let range = magnitude(values().max().unwrap_or(0)).saturating_sub(least).max(1);
    let point = |step: usize, value: u64| {
        let x = scale(2 * step as u64 + 1, 2 * steps as u64, WIDTH);
        (x, HEIGHT - scale(magnitude(value).saturating_sub(least), range, HEIGHT - 10) - 5)
    };
    let shapes = html! {
        @for one in series {
            @for run in runs(&one.values) {
                @let points: Vec<_> = run.iter().map(|(step, value)| point(*step, *value)).collect();
                @if let [(x, y)] = points.as_slice() {
                    line class=(one.class) x1=(x.saturating_sub(4)) y1=(y) x2=(x + 4) y2=(y) vector-effect="non-scaling-stroke" {}
                } @else {
                    polyline class=(one.class) vector-effect="non-scaling-stroke"
                        points=(points.iter().map(|(x, y)| format!("{x},{y}")).collect::<Vec<_>>().join(" ")) {}
                }
            }
        }
    };
    figure(labels, series, &shapes)
}

/// Returns the runs of steps that have a value.
fn runs(values: &[Option<u64>]) -> Vec<Vec<(usize, u64)>> {
    let mut runs = vec![Vec::new()];
    for (step, value) in values.iter().enumerate() {
        match (value, runs.last_mut()) {
            (Some(value), Some(run)) => run.push((step, *value)),
            _ => runs.push(Vec::new()),
        }
    }
    runs.retain(|run| !run.is_empty());
    runs
}

fn figure(labels: &Labels<'_>, series: &[Series], shapes: &Markup) -> Markup {
    let [first, last] = &labels.ends;
    html! {
        figure {
            figcaption { (labels.title) ", at most " (labels.most) }
            svg.chart role="img" aria-label=(labels.text) viewBox=(format!("0 0 {WIDTH} {HEIGHT}")) preserveAspectRatio="none" {
                title { (labels.text) }
                (shapes)
            }
            p.axis { span { (first) } span { (last) } }
            @if series.len() > 1 {
                ul.legend {
                    @for one in series {
                        li {
                            svg.swatch viewBox="0 0 10 10" aria-hidden="true" {
                                rect class=(one.class) width="10" height="10" {}
                            }
                            (one.name)
                        }
                    }
                }
            }
        }
    }
}

fn steps_of(series: &[Series]) -> usize {
    series.iter().map(|one| one.values.len()).max().unwrap_or(0)
}

fn value(series: &Series, step: usize) -> u64 {
    series.values.get(step).copied().flatten().unwrap_or(0)
}

/// Returns the values of a step on each other.
fn height(series: &[Series], step: usize) -> u64 {
    series.iter().fold(0, |sum, one| sum.saturating_add(value(one, step)))
}

/// Returns `part` of `whole` as a part of `length`.
pub(crate) fn scale(part: u64, whole: u64, length: u64) -> u64 {
    let scaled = u128::from(part) * u128::from(length) / u128::from(whole.max(1));
    u64::try_from(scaled).unwrap_or(length).min(length)
}

/// Returns a number that is greater by 1,000 for twice the value, and in between by its part of that.
fn magnitude(value: u64) -> u64 {
    let value = value.saturating_add(1);
    let power = value.ilog2();
    let rest = u128::from(value - (1 << power)) * 1_000 / (1_u128 << power);
    u64::from(power) * 1_000 + u64::try_from(rest).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels() -> Labels<'static> {
        let ends = ["first".to_owned(), "last".to_owned()];
        Labels { title: "Calls", text: "Two steps.".to_owned(), most: "40".to_owned(), ends }
    }

    fn series(class: &'static str, values: &[Option<u64>]) -> Series {
        Series { name: class.to_owned(), class, values: values.to_vec() }
    }

    #[test]
    fn bars_are_on_each_other() {
        let chart = bars(&labels(), &[series("s0", &[Some(30), None]), series("s1", &[Some(10), Some(20)])]);
        let chart = chart.into_string();
        for shape in [
            "class=\"s0\" x=\"0\" y=\"50\" width=\"499\" height=\"150\"",
            "class=\"s1\" x=\"0\" y=\"0\" width=\"499\" height=\"50\"",
            "class=\"s1\" x=\"500\" y=\"100\" width=\"499\" height=\"100\"",
        ] {
            assert!(chart.contains(shape), "{shape}: {chart}");
        }
        assert_eq!(chart.matches("<rect class=\"s0\" x").count(), 1, "{chart}");
        assert!(chart.contains("aria-label=\"Two steps.\""), "{chart}");
    }

    #[test]
    fn a_small_part_has_a_visible_bar() {
        let chart = bars(&labels(), &[series("s0", &[Some(1)]), series("s1", &[Some(1_000_000)])]);
        assert!(chart.into_string().contains("y=\"198\" width=\"999\" height=\"2\""));
        assert!(!bars(&labels(), &[]).into_string().contains("<rect"));
    }

    #[test]
    fn a_histogram_has_its_limit() {
        let ranges = series("s0", &[Some(4), Some(0), Some(1), Some(0)]);
        let chart = histogram(&labels(), &ranges, 2_500).into_string();
        for shape in [
            "class=\"s0\" x=\"0\" y=\"0\" width=\"249\" height=\"200\"",
            "class=\"s0\" x=\"500\" y=\"150\" width=\"249\" height=\"50\"",
            "class=\"limit\" x1=\"625\" y1=\"0\" x2=\"625\" y2=\"200\"",
        ] {
            assert!(chart.contains(shape), "{shape}: {chart}");
        }
        assert_eq!(chart.matches("<rect").count(), 2, "{chart}");
        let beyond = histogram(&labels(), &ranges, u64::MAX).into_string();
        assert!(beyond.contains("x1=\"1000\""), "{beyond}");
    }

    #[test]
    fn a_step_without_a_value_interrupts_a_line() {
        let chart = lines(&labels(), &[series("s0", &[Some(3), Some(7), None, Some(15)])]);
        let chart = chart.into_string();
        assert!(chart.contains("points=\"125,195 375,100\""), "{chart}");
        assert!(chart.contains("x1=\"871\" y1=\"5\" x2=\"879\" y2=\"5\""), "{chart}");
    }

    #[test]
    fn twice_the_value_is_as_far_at_any_height() {
        assert_eq!([0, 1, 3, 7].map(magnitude), [0, 1_000, 2_000, 3_000]);
        assert!(magnitude(u64::MAX - 1) < magnitude(u64::MAX).max(64_000));
        assert!((0..5_000).map(magnitude).is_sorted());
    }
}
