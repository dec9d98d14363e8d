//! The full screen: the terminal, the keys, and the interval. `view.rs` and `draw.rs` produce the
//! contents.

use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

use ratatui::crossterm::event::{self, Event, KeyEvent, KeyEventKind, KeyModifiers};
use rustix::process::{Signal, kill_current_process_group};

use super::draw::{draw, draw_list};
use super::processes::{self, Found};
use super::screen::Screen;
use super::snapshot::{Snapshot, Watched};
use super::view::{INTERRUPT, Key, Left, REDRAW, View};
use crate::exit::Stop;
use crate::talk;

pub fn run(watched: &mut Watched, first: Snapshot, pause: Duration) -> Result<Left, Stop> {
    on_terminal(|screen| watch(screen, watched, first, pause))
}

pub fn pick(directory: &Path, pause: Duration) -> Result<(), Stop> {
    on_terminal(|screen| {
        let mut selected = 0;
        loop {
            let found = processes::find(directory)?;
            let Some(picked) = pick_one(screen, &found, &mut selected, pause)? else {
                return Ok(());
            };
            let Some(found) = found.get(picked) else { continue };
            let opened = Watched::open(&found.path).and_then(|mut it| Ok((it.snapshot()?, it)));
            // If a process has exited in the meantime, the next list shows this.
            let Ok((first, mut watched)) = opened else { continue };
            if watch(screen, &mut watched, first, pause)? == Left::Quit {
                return Ok(());
            }
        }
    })
}

/// Lets the user select a process from `found`. Returns `None` if the user quits. After a pause
/// without a key, returns `found.len()`, so that the caller reads a new list.
fn pick_one(
    screen: &mut Screen,
    found: &[Found],
    selected: &mut usize,
    pause: Duration,
) -> io::Result<Option<usize>> {
    let last = found.len().saturating_sub(1);
    let next = Instant::now() + pause;
    loop {
        *selected = (*selected).min(last);
        screen.draw(|frame| draw_list(frame, found, *selected))?;
        let left = next.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(Some(found.len()));
        }
        let Some(key) = key(left)? else { continue };
        match key {
            Key::Up => *selected = selected.saturating_sub(1),
            Key::Down => *selected += 1,
            Key::Home => *selected = 0,
            Key::End => *selected = last,
            Key::Enter => return Ok(Some(*selected)),
            Key::Esc | INTERRUPT | Key::Char('q') => return Ok(None),
            _ => {}
        }
    }
}

fn watch(
    screen: &mut Screen,
    watched: &mut Watched,
    first: Snapshot,
    pause: Duration,
) -> io::Result<Left> {
    let mut view = View::new(first, talk::may_color(&io::stdout()));
    loop {
        screen.draw(|frame| draw(frame, &mut view))?;
        let next = Instant::now() + pause;
        loop {
            let left = next.saturating_duration_since(Instant::now());
            if left.is_zero() && !view.paused {
                break;
            }
            match key(if view.paused { pause } else { left })?.map(|key| view.press(key)) {
                Some(Some(left)) => return Ok(left),
                Some(None) => {}
                None => continue,
            }
            screen.draw(|frame| draw(frame, &mut view))?;
        }
        view.seen(watched.snapshot());
    }
}

/// Waits for a known key. Reports a new size of the screen as [`REDRAW`].
fn key(wait: Duration) -> io::Result<Option<Key>> {
    if !event::poll(wait)? {
        return Ok(None);
    }
    Ok(match event::read()? {
        Event::Key(key) if is_stop(key) => {
            // This does what the terminal does outside the full screen, because the shell waits
            // until the whole group has stopped.
            kill_current_process_group(Signal::TSTP)?;
            None
        }
        Event::Key(key) => known(key),
        Event::Resize(..) => Some(REDRAW),
        _ => None,
    })
}

fn is_stop(key: KeyEvent) -> bool {
    key.kind != KeyEventKind::Release
        && key.code == Key::Char('z')
        && key.modifiers.contains(KeyModifiers::CONTROL)
}

fn known(key: KeyEvent) -> Option<Key> {
    let is_control = key.modifiers.contains(KeyModifiers::CONTROL);
    match key.code {
        _ if key.kind == KeyEventKind::Release => return None,
        Key::Char('c') if is_control => return Some(INTERRUPT),
        Key::Char(_) | Key::Esc | Key::Enter | Key::Backspace | Key::Tab | Key::BackTab => {}
        Key::Up | Key::Down | Key::Left | Key::Right => {}
        Key::PageUp | Key::PageDown | Key::Home | Key::End => {}
        _ => return None,
    }
    Some(key.code)
}

fn on_terminal<T>(show: impl FnOnce(&mut Screen) -> io::Result<T>) -> Result<T, Stop> {
    let failed = Stop::because("cannot use the terminal");
    let mut screen = Screen::take().map_err(&failed)?;
    let done = show(&mut screen);
    drop(screen);
    done.map_err(failed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_distinguished() {
        let key = |code, modifiers| known(KeyEvent::new(code, modifiers));
        let c = |modifiers| key(Key::Char('c'), modifiers);
        assert_eq!(c(KeyModifiers::CONTROL), Some(INTERRUPT));
        assert_eq!(c(KeyModifiers::NONE), Some(Key::Char('c')));
        assert_eq!(key(Key::Home, KeyModifiers::NONE), Some(Key::Home));
        assert_eq!(key(Key::F(5), KeyModifiers::NONE), None);
    }
}
