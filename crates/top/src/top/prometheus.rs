//! Text for Prometheus, in version 0.0.4 of the exposition format. The library's own writer
//! produces it.

use afterwork::observe::Exposition;

use super::snapshot::Snapshot;

pub fn text(snapshots: &[&Snapshot]) -> String {
    let mut metrics = Exposition::new();
    for snapshot in snapshots {
        let page = &snapshot.page;
        let labels = [("pid", &*page.pid.to_string()), ("process", &*page.name)];
        let about = "1 if the process answered";
        metrics.gauge("afterwork_up", about, &labels, f64::from(u8::from(snapshot.answered)));
        metrics.add_records(&labels, &page.records);
    }
    metrics.to_string()
}
