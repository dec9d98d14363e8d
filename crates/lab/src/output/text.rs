//! The printed output: tables for people, records for programs. Each block is flushed as soon as it
//! is complete, so that an interrupted bench has printed its results.

use std::io::Write;

use anstyle::{AnsiColor, Style};
use serde_json::{Value, json};
use top::exit::Stop;
use top::talk::say;

use super::answer::{self, Question};
use super::outcome::{self, three_digits};
use super::record::{self, End, Head, Line, Why};
use super::run::Run;
use super::sources::{Filled, Source};
use super::table::{Align, Table, ratio};
use super::verdict::{self, Totals};
use super::words;
use crate::harness::beside;
use crate::harness::case::{Case, Series, best_peer};
use crate::harness::claim::{Judged, Verdict};
use crate::harness::noise::{self, Noise};
use crate::harness::run::Ended;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// Tables. If `claims` is set, the claims, which are targets of the project, are also printed.
    Text {
        claims: bool,
    },
    Json,
    /// The tables of sources. `some` is set if only some cases were selected.
    Sources {
        some: bool,
    },
    Answers,
}

pub struct Report<W> {
    out: W,
    form: Form,
    paint: Paint,
    pub unmet: usize,
    pub lines: Vec<Line>,
}

pub struct Finished<'a> {
    pub case: &'a Case,
    pub series: &'a [Series],
    pub ended: Ended,
    pub repeat: usize,
    pub noise: Noise,
    /// `true` if the lines contain every run.
    pub runs: bool,
    pub asked: Option<&'a Question>,
    /// The source whose table is complete with this case.
    pub completes: Option<&'a Source>,
}

impl<W: Write> Report<W> {
    pub fn new(out: W, form: Form, color: bool) -> Self {
        Self { out, form, paint: Paint { color }, unmet: 0, lines: Vec::new() }
    }

    pub fn head(&mut self, head: &Head) -> Result<(), Stop> {
        self.lines.push(Line::Head(Box::new(head.clone())));
        let text = match self.form {
            Form::Json => record::line(head) + "\n",
            Form::Text { .. } | Form::Sources { .. } => {
                let mut lines = head.text();
                lines.push(format!("started  {}: {}", head.started, head.command));
                lines.join("\n") + "\n"
            }
            Form::Answers => introduction(head),
        };
        self.put(&text)?;
        self.warn(&head.warnings)
    }

    pub fn case(&mut self, finished: &Finished<'_>) -> Result<(), Stop> {
        let Finished { case, series, noise, runs, asked, completes, .. } = finished;
        let judged: Vec<Judged<'_>> =
            case.claims.iter().map(|claim| claim.judge(case.metrics, series)).collect();
        self.unmet += judged.iter().filter(|judged| judged.verdict == Verdict::Fails).count();
        let mut warnings = noise::warnings(noise, &format!("during {}", case.name));
        warnings.extend(beside::warnings(series));
        if asked.is_none() {
            let is_cut = matches!(finished.ended, Ended::OutOfTime(_));
            warnings.extend(spread_warnings(case, series, is_cut));
        }
        let mut lines = record::of_case(case, series, &judged, &warnings);
        lines.extend(record::of_noise((case.bench, case.name), noise));
        if *runs {
            lines.extend(record::of_runs(case, series));
        }
        let answered = asked.map_or_else(Vec::new, |it| it.answers(case.metrics, series));
        lines.extend(answered.iter().cloned().map(Line::Answer));
        let paint = self.paint;
        let text = match self.form {
            Form::Json => lines.iter().map(|line| record::line(line) + "\n").collect(),
            Form::Sources { .. } => String::new(),
            Form::Answers => {
                let question = asked.map_or("", |it| it.text);
                answer::block(question, &answered, |outcome, verdict| match outcome {
                    outcome::BETTER => paint.in_color(verdict, AnsiColor::Green),
                    outcome::WORSE => paint.in_color(verdict, AnsiColor::Red),
                    _ => verdict.to_owned(),
                })
            }
            Form::Text { claims } => {
                let best = case
                    .metrics
                    .iter()
                    .find(|metric| metric.name == case.headline)
                    .and_then(|metric| best_peer(series, metric));
                let mut text = format!(
                    "\n{}  {}\n",
                    paint.bold(&format!("{} {}", case.bench, case.name)),
                    case.about
                );
                text.push_str(&values(case, series, best));
                text.push_str(&footnote(finished, best));
                if claims {
                    text.push_str(&table_of_claims(case, &judged, paint));
                }
                text
            }
        };
        self.lines.extend(lines);
        self.put(&text)?;
        if let (Form::Sources { some }, Some(source)) = (self.form, completes) {
            let lines: Vec<Value> = self.lines.iter().map(|it| json!(it)).collect();
            self.put(&tables_of(source, &lines, some))?;
        }
        if self.form == Form::Answers {
            // The last lines report the noise once.
            return Ok(());
        }
        self.warn(&warnings)
    }

    pub fn end(&mut self, end: End) -> Result<(), Stop> {
        let line = Line::End(end.clone());
        self.lines.push(line.clone());
        let text = match self.form {
            Form::Json => record::line(&line) + "\n",
            Form::Text { claims } => {
                let run = Run::of(self.lines.clone()).expect("a bench records a run");
                in_words(&run, &end, claims, self.paint)
            }
            Form::Sources { .. } => format!("\n{:.0} s in total{}\n", end.seconds, ended(&end)),
            Form::Answers => conclusion(&self.lines, &end),
        };
        self.put(&text)
    }

    /// Prints warnings along with the results, or to standard error if the output is JSON.
    fn warn(&mut self, warnings: &[String]) -> Result<(), Stop> {
        if self.form == Form::Json {
            warnings.iter().for_each(|warning| say(format_args!("warning: {warning}")));
            return Ok(());
        }
        let head = self.paint.in_color("warning:", AnsiColor::Yellow);
        self.put(&warnings.iter().map(|it| format!("{head} {it}\n")).collect::<String>())
    }

    fn put(&mut self, text: &str) -> Result<(), Stop> {
        self.out.write_all(text.as_bytes())?;
        Ok(self.out.flush()?)
    }
}

pub(crate) fn tables_of(source: &Source, lines: &[Value], some: bool) -> String {
    let mut text = format!("\n{}\n", source.title);
    for Filled { block, above, rows, below, .. } in source.filled(lines, some) {
        let mut table = Table::default().column("", block.head, Align::Left);
        for column in block.columns {
            table = table.column(column.group, column.head, Align::Right);
        }
        rows.into_iter().for_each(|row| table.row(row));
        text.push_str(&format!("\n{}\n{}{}", above.join("\n"), table.head(), table.body()));
        text.extend(below.iter().map(|line| format!("{line}\n")));
    }
    text + &format!("\nWhy ours differs: {}\n", source.differs)
}

/// Returns the table of a case, with a row for each variant that completed at least one run.
fn values(case: &Case, series: &[Series], best: Option<&Series>) -> String {
    let mut table = Table::default().column("", "variant", Align::Left);
    let ran = || series.iter().filter(|series| !series.samples.is_empty());
    let has_peer = ran().any(|series| series.peer);
    let shown = || case.metrics.iter().filter(|metric| !metric.head.is_empty());
    for metric in shown() {
        table = table.column(metric.group, metric.head, Align::Right);
        if metric.name == case.headline {
            table = table.column(metric.group, "±%", Align::Right);
            if has_peer {
                table = table.column("", "vs peer", Align::Right);
            }
        }
    }
    for series in ran() {
        let mut cells = vec![series.variant.clone()];
        for metric in shown() {
            let spread = series.spread(metric.name);
            cells.push(or_dash(spread, |s| three_digits(s.median / metric.scale)));
            if metric.name == case.headline {
                cells.push(or_dash(spread, |s| match s.n {
                    1 => "one run".into(),
                    _ => format!("{:.0}", s.relative() * 100.0),
                }));
                if has_peer {
                    let vs_best = best.and_then(|best| series.ratio(metric.name, best));
                    cells.push(or_dash(vs_best, ratio));
                }
            }
        }
        table.row(cells);
    }
    table.head() + &table.body()
}

fn in_words(run: &Run, end: &End, claims: bool, paint: Paint) -> String {
    let mut text =
        format!("\n{}\n", paint.bold(&format!("in words: {}", verdict::reported_by(run))));
    for (bench, cases) in verdict::benches(run) {
        text.push_str(&format!("{}\n", paint.bold(bench)));
        for case in cases {
            let name = &case.head.case;
            let words = words::of_case(bench, name, &case.head.about);
            let by = verdict::Standing::of(case).map_or_else(
                || name.clone(),
                |it| format!("{name}: {} to {}, n {}", it.ours, it.peer, it.n),
            );
            text.push_str(&format!("  {words}{} ({by})\n", verdict::of_case(case)));
        }
    }
    for case in run.cases.iter().filter(|_| claims) {
        for claim in case.claims.iter().filter(|it| it.verdict == Verdict::Fails) {
            text.push_str(&paint.in_color("does not hold:", AnsiColor::Red));
            text.push_str(&format!(
                " {} ({} {}): {}, against {}: {}, claimed {}\n",
                words::of_case(&claim.bench, &claim.case, &case.head.about),
                claim.bench,
                claim.case,
                claim.claim,
                claim.against.as_deref().unwrap_or("no other"),
                or_dash(claim.ratio, ratio),
                claim.bound.as_deref().unwrap_or("nothing"),
            ));
        }
    }
    let ended = ended(end);
    let totals = match claims {
        true => Totals::of(&run.cases).in_words(),
        false => verdict::outcomes(run),
    };
    text + &format!("{totals}; {:.0} s in total{ended}\n", end.seconds)
}

fn ended(end: &End) -> &'static str {
    match end.ended {
        Why::Complete => "",
        Why::Interrupted => "; interrupted: the rest was not measured",
    }
}

fn introduction(head: &Head) -> String {
    let machine = &head.fingerprint;
    let kind = match machine.is_virtual {
        Some(true) => " (virtual)",
        _ => "",
    };
    format!(
        "afterwork {} · {} CPUs, {}{kind} · other programs use {:.0} % · about a minute\n\
         Same work, same machine, in turns. Ours on the left, the best of the others next to it.\n",
        machine.version,
        machine.cpus_allowed,
        machine.cpu.as_deref().unwrap_or("unknown"),
        head.others_cpu * 100.0,
    )
}

fn conclusion(lines: &[Line], end: &End) -> String {
    let outcomes = lines.iter().filter_map(|line| match line {
        Line::Answer(answer) => Some(answer.outcome.as_str()),
        _ => None,
    });
    let ended = match end.ended {
        Why::Complete => "",
        Why::Interrupted => " · interrupted",
    };
    let others = lines.iter().filter_map(|line| match line {
        Line::Record(record) if record.metric == "others_cpu" => Some(record.median),
        _ => None,
    });
    let noise = match others.fold(0.0, f64::max) {
        most if most > noise::OTHERS_LIMIT => format!(
            "warning: other programs used up to {:.0} % of the CPUs: run this on a quiet machine\n",
            most * 100.0
        ),
        _ => String::new(),
    };
    format!(
        "\n{noise}{} · {:.0} s{ended}\n\
         All benches: afterwork-lab bench (about 15 minutes). A page of these: --report FILE.\n\
         A program to watch: cargo run -p afterwork-top demo, and in another terminal top.\n",
        verdict::tally(outcomes),
        end.seconds
    )
}

fn footnote(finished: &Finished<'_>, best: Option<&Series>) -> String {
    let Finished { ended, repeat, .. } = *finished;
    let mut text = match ended {
        Ended::Complete if repeat == 1 => "one repetition: no verdict".into(),
        Ended::OutOfTime(1) => {
            format!("one repetition: no verdict; time was up before the other {}", repeat - 1)
        }
        Ended::Complete => format!("medians of {repeat} repetitions"),
        Ended::OutOfTime(done) => {
            format!("medians of {done} repetitions: time was up before the other {}", repeat - done)
        }
        Ended::Interrupted => {
            let done = finished.series.iter().map(|series| series.samples.len()).min().unwrap_or(0);
            format!("interrupted: medians of {done} complete repetitions and a partial one")
        }
    };
    if let Some(best) = best {
        text.push_str(&format!("; ratios paired by repetition, best peer {}", best.variant));
    }
    if let [Some(before), Some(after)] = finished.noise.handover_ns {
        text.push_str(&format!(
            "\na cache line went from CPU to CPU and back in {before:.0} ns before, {after:.0} ns after"
        ));
    }
    text + "\n"
}

fn table_of_claims(case: &Case, judged: &[Judged<'_>], paint: Paint) -> String {
    if judged.is_empty() {
        return String::new();
    }
    let mut table = Table::default()
        .column("", "ratio", Align::Left)
        .column("", "against", Align::Left)
        .column("", "measured", Align::Right)
        .column("", "n", Align::Right)
        .column("", "claim", Align::Right)
        .column("", "holds?", Align::Left);
    for judged in judged {
        table.row(vec![
            record::description(case, judged.claim),
            judged.against.clone().unwrap_or_default(),
            or_dash(judged.ratio, ratio),
            or_dash(judged.ratio, |it| it.n.to_string()),
            judged.claim.bound.to_string(),
            judged.verdict.in_words(judged.close),
        ]);
    }
    let body: String = table
        .body()
        .lines()
        .zip(judged)
        .map(|(line, judged)| match judged.verdict {
            Verdict::Holds => paint.in_color(line, AnsiColor::Green) + "\n",
            Verdict::Fails => paint.in_color(line, AnsiColor::Red) + "\n",
            Verdict::OneRun | Verdict::NotMeasured => format!("{line}\n"),
        })
        .collect();
    format!("\n{}{body}", table.head())
}

/// Returns warnings about few repetitions and large spreads. `is_cut` is set if time ran out.
fn spread_warnings(case: &Case, series: &[Series], is_cut: bool) -> Vec<String> {
    let spreads = || series.iter().filter_map(|it| Some((it, it.spread(case.headline)?)));
    let mut warnings = Vec::new();
    if let Some((series, spread)) = spreads().min_by_key(|(_, spread)| spread.n)
        && spread.n < noise::FEW_REPETITIONS
    {
        let fewest = spread.n;
        let (times, show) = match fewest {
            1 => ("repetition", "shows"),
            _ => ("repetitions", "show"),
        };
        let all = fewest + series.thrown_away().count();
        warnings.push(if all >= noise::FEW_REPETITIONS {
            // The other repetitions were discarded.
            format!(
                "only {fewest} of {all} repetitions of {} counted for {}, too few to show a spread",
                case.name, series.variant
            )
        } else {
            let hint = match is_cut {
                true => "the time ran out".into(),
                false => format!("--repeat {} or more does", noise::FEW_REPETITIONS),
            };
            format!("{fewest} {times} of {} {show} no spread: {hint}", case.name)
        });
    }
    let wild: Vec<&str> = spreads()
        .filter(|(_, spread)| spread.relative() > noise::SPREAD_LIMIT)
        .map(|(series, _)| series.variant.as_str())
        .collect();
    if !wild.is_empty() {
        warnings.push(format!(
            "repetitions differ by more than {:.0} % from their median: {}",
            noise::SPREAD_LIMIT * 100.0,
            wild.join(", ")
        ));
    }
    warnings
}

fn or_dash<T>(value: Option<T>, format: impl FnOnce(T) -> String) -> String {
    value.map_or_else(|| "-".into(), format)
}

#[derive(Clone, Copy)]
struct Paint {
    color: bool,
}

impl Paint {
    fn bold(self, text: &str) -> String {
        self.styled(text, Style::new().bold())
    }

    fn in_color(self, text: &str, color: AnsiColor) -> String {
        self.styled(text, Style::new().fg_color(Some(color.into())))
    }

    fn styled(self, text: &str, style: Style) -> String {
        if self.color { format!("{style}{text}{style:#}") } else { text.into() }
    }
}

#[cfg(test)]
mod tests;
