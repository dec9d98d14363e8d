//! Text for Prometheus: the exposition format, version 0.0.4.

use std::collections::HashMap;
use std::fmt::Write;

use afterwork::page::{Kind, Measure, Record};

use super::look::Look;

/// Writes the figures of some processes.
#[must_use]
pub fn text(looks: &[&Look]) -> String {
    let mut text = String::new();
    let mut head = |name: &str, about: &str, measure: &str, samples: &[String]| {
        if !samples.is_empty() {
            let _ = writeln!(text, "# HELP {name} {about}\n# TYPE {name} {measure}");
            text += &samples.concat();
        }
    };
    let answers = looks.iter().map(|look| {
        let answered = u8::from(look.answered);
        format!("afterwork_up{{{}}} {answered}\n", process_labels(look))
    });
    let about = "1 if the process answered";
    head("afterwork_up", about, "gauge", &answers.collect::<Vec<_>>());
    for kind in Kind::ALL {
        for field in kind.fields() {
            let (measure, suffix) = match field.measure {
                Measure::Gauge => ("gauge", ""),
                Measure::Counter | Measure::Fault => ("counter", "_total"),
            };
            let name = format!("afterwork_{}_{}{suffix}", kind.name(), field.name);
            let samples = looks.iter().flat_map(|look| {
                labelled(look, kind).filter_map(|(labels, record)| {
                    let figure = record.figure(field.name)?;
                    Some(format!("{name}{{{labels}}} {figure}\n"))
                })
            });
            head(&name, field.about, measure, &samples.collect::<Vec<_>>());
        }
    }
    text
}

/// Returns the records of a kind with labels that no two of them share.
fn labelled(look: &Look, kind: Kind) -> impl Iterator<Item = (String, &Record)> {
    let mut seen = HashMap::new();
    look.page.of(kind).map(move |record| {
        let (name, detail) = (escaped(&record.name), escaped(&record.detail));
        let mut labels = process_labels(look);
        let _ = write!(labels, ",name=\"{name}\",detail=\"{detail}\"");
        let nr_before = seen.entry((name, detail)).or_insert(0);
        if *nr_before > 0 {
            let _ = write!(labels, ",index=\"{nr_before}\"");
        }
        *nr_before += 1;
        (labels, record)
    })
}

fn process_labels(look: &Look) -> String {
    let page = &look.page;
    format!("pid=\"{}\",process=\"{}\"", page.pid, escaped(&page.name))
}

fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\")
        .replace('"', "\\\"")
        .replace('\n', "\\n")
}
