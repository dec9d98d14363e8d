//! The table of results, followed by the lines with the longest waits.

use serde_json::Value;

fn rate(value: &Value) -> String {
    let rate = value.as_f64().unwrap_or(0.0);
    match rate {
        1e6.. => format!("{:.2} M", rate / 1e6),
        _ => format!("{:.0} k", rate / 1e3),
    }
}

fn figure(value: &Value) -> String {
    format!("{:.2}", value.as_f64().unwrap_or(0.0))
}

fn percent(ratio: &Value) -> String {
    format!("{:+.0}", (ratio.as_f64().unwrap_or(f64::NAN) - 1.0) * 100.0)
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or("")
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

pub fn shown(all: &Value) -> String {
    let guesses: Vec<_> = list(&all["guesses"]).iter().map(text).collect();
    let plain = match all["plain_accesses"] == true {
        true => "Plain accesses are charged.",
        false => "Plain accesses are not charged, and the share of guarded data is a guess too.",
    };
    let mut out = format!(
        "SIMULATED, not measured: {} on {}. {} of its costs are guesses ({}). {plain} Trust which line saturates, \
         and from how many CPUs on; not the figures.\n\n",
        text(&all["scenario"]),
        text(&all["machine"]),
        guesses.len(),
        guesses.join(", "),
    );
    out += "scenario          scope        cpus    items/s           over seeds          and guesses   queue 50/95 ns  kicks/i wakes/i   moves/i  workers\n";
    for row in list(&all["rows"]) {
        let median = &row["median"];
        let bounds = |of: &str| format!("{} to {}", rate(&row[of][0]), rate(&row[of][1]));
        let queued = match median["queued_p50_ns"].as_u64() {
            Some(half) => format!("{half} / {}", median["queued_p95_ns"]),
            None => "-".into(),
        };
        out += &format!(
            "{:17} {:12} {:>4}  {:>9}  {:>19}  {:>19}  {:>15}  {:>7} {:>7} {:>9} {:>8}{}\n",
            text(&row["scenario"]),
            text(&row["scope"]),
            row["nr_cpus"].to_string(),
            rate(&median["items_per_s"]),
            bounds("over_seeds"),
            bounds("over_guesses"),
            queued,
            figure(&median["kicks_per_item"]),
            figure(&median["wakes_per_item"]),
            figure(&median["transfers_per_item"]),
            median["nr_workers"].to_string(),
            if row["is_bistable"] == true { "  BISTABLE: two regimes, no average" } else { "" },
        );
    }
    let first = text(&list(&all["rows"])[0]["scenario"]);
    for row in list(&all["rows"]) {
        let Some(to_first) = row.get("to_first") else { continue };
        let cell = |of: &str| {
            let of = &to_first[of];
            let both = |of: &Value| format!("{} to {}", percent(&of[0]), percent(&of[1]));
            let (seeds, all) = (both(&of["over_seeds"]), both(&of["over_guesses"]));
            format!("{} % ({seeds} over seeds, {all} and guesses)", percent(&of["median"]))
        };
        out += &format!(
            "\n{} to {first}, {} scope, {} CPUs:\n  items/s {}; queueing, 95 of 100 {}\n",
            text(&row["scenario"]),
            text(&row["scope"]),
            row["nr_cpus"],
            cell("items_per_s"),
            cell("queued_p95_ns"),
        );
    }
    for row in list(&all["rows"]) {
        let (scenario, scope) = (text(&row["scenario"]), text(&row["scope"]));
        out += &format!("\n{scenario}, {scope} scope, {} CPUs\n", row["nr_cpus"]);
        for most in list(&row["most_by"]) {
            let [times, rate] = ["times", "changes_rate_to"].map(|of| figure(&most[of]));
            out += &format!("  {} x {times}: the rate x {rate}\n", text(&most["cost"]));
        }
        for line in list(&row["median"]["hot"]).iter().take(3) {
            let [wait, moves] = ["wait_ns_per_item", "moves_per_item"].map(|of| figure(&line[of]));
            out += &format!("  a line: {wait} ns of waiting and {moves} moves an item\n");
            for site in list(&line["sites"]) {
                let wait = figure(&site["wait_ns_per_item"]);
                out += &format!("    {wait:>10} ns at {}\n", text(&site["site"]));
            }
            if let Some(stack) = list(&line["stacks"]).first() {
                let frames = text(&stack["stack"]).replace("    ", "        ");
                out += &format!("    {} % by\n{frames}", stack["percent"]);
            }
        }
        for lock in list(&row["median"]["locks"]).iter().take(2) {
            out += &format!(
                "  lock of {}: taken {} times an item, waited {} ns, held {} ns\n",
                text(&lock["guards"]),
                figure(&lock["taken_per_item"]),
                figure(&lock["wait_ns"]),
                figure(&lock["hold_ns"]),
            );
        }
    }
    out
}
