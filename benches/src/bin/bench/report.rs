//! The numbers of all rounds, as a table or as JSON.

use std::io::{self, Write};

use serde_json::json;

use crate::contenders::{BATCH_TWIN, Contender, NAIVE_TWIN};
use crate::trial::Run;

/// All runs, contender by contender and round by round.
#[derive(Debug)]
pub(crate) struct Results {
    lines: Vec<Line>,
}

#[derive(Debug)]
struct Line {
    name: &'static str,
    /// By round; `None` where a run was wrong.
    runs: Vec<(usize, Option<Run>)>,
}

/// The least, the middle and the greatest.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Spread {
    min: f64,
    median: f64,
    max: f64,
}

impl Spread {
    fn of(values: impl IntoIterator<Item = f64>) -> Option<Self> {
        let mut values: Vec<f64> = values.into_iter().collect();
        values.sort_by(f64::total_cmp);
        let (min, max) = (*values.first()?, *values.last()?);
        let (lower, upper) = ((values.len() - 1) / 2, values.len() / 2);
        let median = f64::midpoint(values[lower], values[upper]);
        Some(Self { min, median, max })
    }
}

impl Line {
    fn spread(&self, of: impl Fn(&Run) -> f64) -> Option<Spread> {
        Spread::of(
            self.runs
                .iter()
                .filter_map(|(_, run)| run.as_ref().map(&of)),
        )
    }

    fn rate_in(&self, round: usize) -> Option<f64> {
        let run = self.runs.iter().find(|(of, _)| *of == round);
        run.and_then(|(_, run)| run.map(|run| run.rate))
    }

    /// Its rate as a multiple of another's of the same round, which met the same weather.
    fn ratio_to(&self, other: Option<&Self>) -> Option<Spread> {
        let other = other?;
        let ratio = |round| Some(self.rate_in(round)? / other.rate_in(round)?);
        Spread::of(self.runs.iter().filter_map(|(round, _)| ratio(*round)))
    }

    fn exact(&self) -> bool {
        self.runs.iter().all(|(_, run)| run.is_some())
    }
}

impl Results {
    pub(crate) fn new(contenders: &[&Contender]) -> Self {
        let line = |contender: &&Contender| Line {
            name: contender.name,
            runs: Vec::new(),
        };
        Self {
            lines: contenders.iter().map(line).collect(),
        }
    }

    pub(crate) fn add(&mut self, index: usize, round: usize, run: Result<Run, String>) {
        self.lines[index].runs.push((round, run.ok()));
    }

    /// Whether every run was right.
    pub(crate) fn exact(&self) -> bool {
        self.lines.iter().all(Line::exact)
    }

    fn named(&self, name: &str) -> Option<&Line> {
        self.lines.iter().find(|line| line.name == name)
    }

    pub(crate) fn write_table(&self, out: &mut impl Write) -> io::Result<()> {
        writeln!(
            out,
            "{:<16} {:^23}  {:^17}  {:^17}  {:>8}  {:>5}",
            "", "deliveries/s", "x naive twin", "x batch twin", "CPU s", "peak"
        )?;
        writeln!(
            out,
            "{:<16} {:>7} {:>7} {:>7}  {:>5} {:>5} {:>5}  {:>5} {:>5} {:>5}  {:>8}  {:>5}  exact",
            "", "min", "median", "max", "min", "med", "max", "min", "med", "max", "per 100k", "MiB"
        )?;
        for line in &self.lines {
            let naive = line.ratio_to(self.named(NAIVE_TWIN));
            let batch = line.ratio_to(self.named(BATCH_TWIN));
            writeln!(
                out,
                "{:<16} {}  {}  {}  {:>8}  {:>5}  {}",
                line.name,
                columns(line.spread(|run| run.rate), 7, 0),
                columns(naive, 5, 2),
                columns(batch, 5, 2),
                median(line.spread(|run| run.cpu_s_per_100k), 2),
                median(line.spread(|run| run.peak_mib), 0),
                if line.exact() { "yes" } else { "NO" },
            )?;
        }
        Ok(())
    }

    /// A line each. What was not measured is null.
    pub(crate) fn write_json(&self, out: &mut impl Write, duplicates: f64) -> io::Result<()> {
        for line in &self.lines {
            let rate = line.spread(|run| run.rate);
            let median = |spread: Option<Spread>| spread.map(|spread| spread.median);
            let deliveries = line
                .runs
                .iter()
                .find_map(|(_, run)| run.map(|run| run.deliveries));
            let object = json!({
                "name": line.name,
                "rate": median(rate),
                "rate_min": rate.map(|rate| rate.min),
                "rate_max": rate.map(|rate| rate.max),
                "ratio_to_naive": median(line.ratio_to(self.named(NAIVE_TWIN))),
                "ratio_to_batch_twin": median(line.ratio_to(self.named(BATCH_TWIN))),
                "cpu_s_per_100k": median(line.spread(|run| run.cpu_s_per_100k)),
                "peak_mib": median(line.spread(|run| run.peak_mib)),
                "exact": line.exact(),
                "rounds": line.runs.len(),
                "deliveries": deliveries,
                "duplicates": duplicates,
            });
            writeln!(out, "{object}")?;
        }
        Ok(())
    }
}

fn columns(spread: Option<Spread>, width: usize, digits: usize) -> String {
    let column = |value: Option<f64>| match value {
        Some(value) => format!("{value:>width$.digits$}"),
        None => format!("{:>width$}", "-"),
    };
    [
        spread.map(|spread| spread.min),
        spread.map(|spread| spread.median),
        spread.map(|spread| spread.max),
    ]
    .map(column)
    .join(" ")
}

fn median(spread: Option<Spread>, digits: usize) -> String {
    spread.map_or("-".into(), |spread| format!("{:.digits$}", spread.median))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(name: &'static str, rates: [Option<f64>; 3]) -> Line {
        let run = |rate| Run {
            deliveries: 10,
            rate,
            cpu_s_per_100k: 1.0,
            peak_mib: 1.0,
        };
        let runs = rates.into_iter().enumerate();
        Line {
            name,
            runs: runs.map(|(round, rate)| (round, rate.map(run))).collect(),
        }
    }

    #[test]
    fn the_median_of_an_even_number_of_values_lies_between_two() {
        let spread = Spread::of([4.0, 1.0, 3.0, 2.0]).unwrap();

        assert_eq!((spread.min, spread.median, spread.max), (1.0, 2.5, 4.0));
    }

    #[test]
    fn a_ratio_compares_runs_of_one_round() {
        let naive = line(NAIVE_TWIN, [Some(10.0), Some(1.0), Some(10.0)]);
        let other = line("other", [Some(20.0), Some(2.0), Some(30.0)]);

        let ratio = other.ratio_to(Some(&naive)).unwrap();

        assert_eq!((ratio.min, ratio.median, ratio.max), (2.0, 2.0, 3.0));
    }

    #[test]
    fn a_wrong_run_has_no_rate_and_makes_its_contender_inexact() {
        let naive = line(NAIVE_TWIN, [Some(10.0), None, Some(10.0)]);
        let other = line("other", [None, Some(2.0), Some(30.0)]);
        let results = Results {
            lines: vec![naive, other],
        };
        let mut table = Vec::new();

        results.write_table(&mut table).unwrap();

        assert!(!results.exact());
        let ratio = results.lines[1].ratio_to(results.named(NAIVE_TWIN));
        assert_eq!(ratio.map(|ratio| (ratio.min, ratio.max)), Some((3.0, 3.0)));
        assert!(String::from_utf8(table).unwrap().contains("NO"));
    }
}
