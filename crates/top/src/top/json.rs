//! The output as JSON.
//!
//! A snapshot is one object in one line. A list of processes is an array of such objects. `records`
//! contains an array for each kind. A record contains its name, its detail, its figures by their
//! names, and `per_s`, which is the increase of its counters per second.

use afterwork::page::{Kind, Measure, VERSION};
use serde_json::{Map, Value, json};

use super::processes::Found;
use super::rows::{pairs, rate, span_s};
use super::snapshot::{NoSnapshot, Snapshot};

pub fn snapshot(now: &Snapshot, before: Option<&Snapshot>) -> Value {
    let page = &now.page;
    let kinds = Kind::ALL.map(|kind| (kind.name().to_owned(), records(kind, now, before)));
    json!({
        "version": VERSION,
        "pid": page.pid,
        "name": page.name,
        "state": "live",
        "round": page.round,
        "answered": now.answered,
        "whole": page.is_whole(),
        "age_ms": now.age.as_millis() as u64,
        "took_us": page.took_ns / 1000,
        "torn": page.nr_torn,
        "left_out": page.nr_left_out,
        "unknown": page.nr_unknown,
        "records": Map::from_iter(kinds),
    })
}

fn records(kind: Kind, now: &Snapshot, before: Option<&Snapshot>) -> Value {
    let records = pairs(kind, now, before).map(|(record, past)| {
        let mut object = json!({"name": record.name, "detail": record.detail});
        let mut per_s = json!({});
        for (field, figure) in record.figures() {
            object[field.name] = json!(figure);
            if field.measure != Measure::Gauge
                && let Some(rate) = rate(record, past, field.name, span_s(now, before))
            {
                per_s[field.name] = json!(rate);
            }
        }
        if past.is_some() {
            object["per_s"] = per_s;
        }
        object
    });
    Value::Array(records.collect())
}

pub fn measure(measure: Measure) -> &'static str {
    match measure {
        Measure::Gauge => "now",
        Measure::Counter => "count",
        Measure::Fault => "fault",
    }
}

/// Returns the meaning of each figure: an object with an array for each kind.
pub fn fields() -> Value {
    let kinds = Kind::ALL.map(|kind| {
        let fields = kind.fields().iter().map(|field| {
            json!({"name": field.name, "measure": measure(field.measure), "about": field.about})
        });
        (kind.name().to_owned(), Value::Array(fields.collect()))
    });
    Value::Object(Map::from_iter(kinds))
}

pub fn processes(found: &[Found]) -> Value {
    let objects = found.iter().map(|found| match &found.snapshot {
        Ok(seen) => snapshot(seen, None),
        Err(no_look) => {
            let is_stale = matches!(no_look, NoSnapshot::Stale(_));
            let state = if is_stale { "stale" } else { "refused" };
            json!({"pid": found.pid, "state": state, "reason": no_look.reason()})
        }
    });
    Value::Array(objects.collect())
}
