//! The parts that have records. A subsystem or one of its parts joins when it is first used.

use sync::fork::{self, Handler};
use sync::unmodelled::Arc;
use sync::{Mutex, OnceLock};

use super::image::Image;
use crate::numbered::Numbered;
use crate::panics;

type Source = Arc<dyn Fn(&mut Image) + Send + Sync>;

sync::process_wide! {
    fn sources() -> Mutex<Numbered<Source>> = Mutex::new(Numbered::new())
}

static HANDLER: Handler = Handler {
    settle: publish_if_configured,
    before: |held| held.lock(sources()),
    // The sources describe the parent's parts, and may wait for locks that are held by threads that
    // do not exist. They are leaked, because a drop may run user code.
    child: || sources().lock().take_all().for_each(std::mem::forget),
};

/// Owned by each part that has records, which its drop removes.
#[derive(Debug)]
pub struct Joined(Option<u64>);

/// Calls `source` to write records in each round, until the result is dropped. Starts publishing if
/// the environment requests it. Does nothing in a model.
#[cold]
pub fn join(source: impl Fn(&mut Image) + Send + Sync + 'static) -> Joined {
    if cfg!(any(loom, shuttle)) {
        return Joined(None);
    }
    fork::register(&HANDLER);
    let mut all = sources().lock();
    let number = all.add(Arc::new(source));
    drop(all);
    publish_if_configured();
    Joined(Some(number))
}

/// Calls all sources, with no lock held.
#[cfg(not(any(loom, shuttle)))]
pub fn describe_all(image: &mut Image) {
    let all: Vec<_> = sources().lock().iter().cloned().collect();
    for source in all {
        // FOREIGN(page-source): the source, which may drop the last handle to a part, on the page's
        // thread. A panic is caught.
        panics::contain(|| {
            source(image);
            drop(source);
        });
    }
}

/// Publishes if the environment requests it. The parts that read tunables report errors in the
/// environment.
fn publish_if_configured() {
    static CHECKED: OnceLock<()> = OnceLock::new();
    CHECKED.get_or_init(|| {
        #[cfg(not(any(loom, shuttle)))]
        if crate::params::Params::from_env().is_ok_and(|params| params.publish)
            && let Err(error) = super::publisher::publish()
        {
            panics::write_line(&format!("cannot publish: {error}"));
        }
    });
}

impl Drop for Joined {
    fn drop(&mut self) {
        if let Some(number) = self.0.take() {
            let source = sources().lock().remove(number);
            // FOREIGN(page-part): the drop of the source, which may own the last handle to a part,
            // on the thread that drops this value. A panic is caught.
            panics::contain(|| drop(source));
        }
    }
}
