//! Parses Prometheus text by its pages "Exposition formats" and "Metric and label naming".

use std::collections::{BTreeMap, BTreeSet};

pub type Labels = BTreeMap<String, String>;

/// A sample: the name and labels of its series, and its value.
pub type Sample = (String, Labels, f64);

/// A metric: its type, and its samples in order.
pub type Metrics = BTreeMap<String, (String, Vec<Sample>)>;

fn is_name(name: &str) -> bool {
    let mut letters = name.chars();
    letters.next().is_some_and(|it| it.is_ascii_alphabetic() || it == '_')
        && letters.all(|it| it.is_ascii_alphanumeric() || it == '_')
}

fn sample(line: &str) -> Result<Sample, &'static str> {
    let (series, value) = line.rsplit_once(' ').ok_or("a sample has no value")?;
    let value = value.parse().map_err(|_| "a value is not a number")?;
    let (name, mut rest) = series.split_at(series.find('{').unwrap_or(series.len()));
    if !is_name(name) {
        return Err("a metric's name");
    }
    let mut labels = Labels::new();
    if let Some(inside) = rest.strip_prefix('{') {
        rest = inside;
        loop {
            let (label, after) = rest.split_once("=\"").ok_or("a label has no value")?;
            if !is_name(label) || label.starts_with("__") {
                return Err("a label's name");
            }
            let (mut value, mut letters) = (String::new(), after.chars());
            loop {
                match letters.next().ok_or("a label's value does not end")? {
                    '"' => break,
                    '\\' => value.push(match letters.next() {
                        Some('n') => '\n',
                        Some(letter @ ('"' | '\\')) => letter,
                        _ => return Err("an unknown escape"),
                    }),
                    letter => value.push(letter),
                }
            }
            if labels.insert(label.to_owned(), value).is_some() {
                return Err("a label twice");
            }
            rest = letters.as_str();
            match rest.strip_prefix(',') {
                Some(next) => rest = next,
                None if rest == "}" => break,
                None => return Err("labels do not end"),
            }
        }
    }
    Ok((name.to_owned(), labels, value))
}

/// Parses Prometheus text, and returns an error if it breaks a rule.
pub fn metrics(text: &str) -> Result<Metrics, &'static str> {
    if !text.ends_with('\n') {
        return Err("the last line does not end");
    }
    let (mut metrics, mut seen) = (Metrics::new(), BTreeSet::new());
    let mut lines = text.lines().peekable();
    // Each metric has a line of help, a line with its type, and its samples.
    while let Some(line) = lines.next() {
        let help = line.strip_prefix("# HELP ").and_then(|it| it.split_once(' '));
        let (name, about) = help.ok_or("a metric begins without a help text")?;
        if !is_name(name) || about.is_empty() || metrics.contains_key(name) {
            return Err("help for no name, without words, or twice");
        }
        let typed = lines.next().and_then(|line| line.strip_prefix("# TYPE ")?.split_once(' '));
        let (_, measure) = typed.filter(|it| it.0 == name).ok_or("a metric without a type")?;
        if !["counter", "gauge", "histogram"].contains(&measure) {
            return Err("an unknown type");
        }
        if name.ends_with("_total") != (measure == "counter") {
            return Err("only counters end in _total");
        }
        if ["_ns", "_us", "_ms"].iter().any(|unit| name.contains(unit)) {
            return Err("not a base unit");
        }
        let suffixes: &[&str] = match measure {
            "histogram" => &["_bucket", "_sum", "_count"],
            _ => &[""],
        };
        let mut samples = Vec::new();
        while let Some(line) = lines.next_if(|line| !line.starts_with('#')) {
            let sample = sample(line)?;
            if !sample.0.strip_prefix(name).is_some_and(|it| suffixes.contains(&it)) {
                return Err("a sample of another metric");
            }
            if !seen.insert((sample.0.clone(), sample.1.clone())) {
                return Err("a series twice");
            }
            samples.push(sample);
        }
        if samples.is_empty() {
            return Err("a metric without samples");
        }
        if measure == "histogram" {
            histogram(name, &samples)?;
        }
        metrics.insert(name.to_owned(), (measure.to_owned(), samples));
    }
    Ok(metrics)
}

fn histogram(name: &str, samples: &[Sample]) -> Result<(), &'static str> {
    // For each set of labels there are the buckets in order, then the sum, then the count.
    let mut last: Option<(Labels, f64, f64)> = None;
    let mut nr_sums = 0;
    for (series, labels, value) in samples {
        let mut labels = labels.clone();
        let le = labels.remove("le").map(|le| le.parse::<f64>());
        match (series.strip_prefix(name), le) {
            (Some("_bucket"), Some(Ok(le))) => {
                let before = last.take().filter(|(of, ..)| *of == labels);
                if before.is_some_and(|(_, below, count)| le <= below || *value < count) {
                    return Err("buckets decrease");
                }
                last = Some((labels, le, *value));
            }
            (Some("_sum"), None) => nr_sums += 1,
            (Some("_count"), None) => {
                let (of, le, count) = last.take().ok_or("a count without buckets")?;
                if of != labels || le != f64::INFINITY || count != *value {
                    return Err("the last bucket omits samples");
                }
                nr_sums -= 1;
            }
            _ => return Err("a histogram's sample"),
        }
    }
    (last.is_none() && nr_sums == 0).then_some(()).ok_or("a histogram without its count or sum")
}
