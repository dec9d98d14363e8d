//! Text for Prometheus: the exposition format, version 0.0.4, by the library's own writer.

use afterwork::observe::Exposition;

use super::look::Look;

/// Writes the figures of some processes.
#[must_use]
pub fn text(looks: &[&Look]) -> String {
    let mut metrics = Exposition::new();
    for look in looks {
        let page = &look.page;
        let labels = [("pid", &*page.pid.to_string()), ("process", &*page.name)];
        let about = "1 if the process answered";
        metrics.gauge(
            "afterwork_up",
            about,
            &labels,
            f64::from(u8::from(look.answered)),
        );
        metrics.add_records(&labels, &page.records);
    }
    metrics.to_string()
}
