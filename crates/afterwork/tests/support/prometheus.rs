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
    let mut metrics = Metrics::new();
    let (mut present, mut is_typed, mut seen) = (String::new(), false, BTreeSet::new());
    if !text.ends_with('\n') {
        return Err("the last line does not end");
    }
    for line in text.lines() {
        if let Some(help) = line.strip_prefix("# HELP ") {
            let (name, about) = help.split_once(' ').ok_or("the help text is empty")?;
            if !is_name(name) || about.is_empty() || metrics.contains_key(name) {
                return Err("help for no name, without words, or twice");
            }
            (present, is_typed) = (name.to_owned(), false);
            metrics.insert(name.to_owned(), Default::default());
        } else if let Some(typed) = line.strip_prefix("# TYPE ") {
            let (name, measure) = typed.split_once(' ').ok_or("a type without a name")?;
            if name != present || is_typed || !["counter", "gauge", "histogram"].contains(&measure)
            {
                return Err("a type of another metric, twice, or unknown");
            }
            if name.ends_with("_total") != (measure == "counter") {
                return Err("only counters end in _total");
            }
            if ["_ns", "_us", "_ms"].iter().any(|unit| name.contains(unit)) {
                return Err("not a base unit");
            }
            is_typed = true;
            metrics.get_mut(name).unwrap().0 = measure.to_owned();
        } else {
            let sample = sample(line)?;
            let (measure, samples) = metrics.get_mut(&present).ok_or("no metric yet")?;
            let suffix = sample.0.strip_prefix(present.as_str()).unwrap_or("?");
            let fits = match measure.as_str() {
                "histogram" => ["_bucket", "_sum", "_count"].contains(&suffix),
                _ => suffix.is_empty(),
            };
            if !is_typed || !fits {
                return Err("a sample of another metric");
            }
            if !seen.insert((sample.0.clone(), sample.1.clone())) {
                return Err("a series twice");
            }
            samples.push(sample);
        }
    }
    for (name, (measure, samples)) in &metrics {
        if samples.is_empty() {
            return Err("a metric without samples");
        }
        if measure == "histogram" {
            histogram(name, samples)?;
        }
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
