//! The same tables, full screen.

use std::io::{self, IsTerminal};
use std::time::{Duration, Instant};

use ratatui::Frame;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use ratatui::layout::{Constraint, Layout};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::Paragraph;

use super::look::{Look, NoLook, Watched};
use super::rows::tables;
use super::text::{headline, lay_out};
use crate::exit::Stop;
use crate::talk;

const HELP: &str = " q ends   ↑ ↓ PgUp PgDn scroll   p pauses ";

/// What is on the screen.
#[derive(Debug)]
struct View {
    now: Look,
    before: Option<Look>,
    /// Why there is nothing newer to see.
    over: Option<NoLook>,
    scroll: u16,
    paused: bool,
    colour: bool,
}

/// What a key asks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Wish {
    Quit,
    /// So many lines down, or up.
    Scroll(i32),
    Pause,
    Nothing,
}

/// Shows the process until the user has seen enough.
pub fn run(watched: &mut Watched, first: Look, pause: Duration) -> Result<(), Stop> {
    if !io::stdout().is_terminal() {
        return Err(Stop::CouldNotRun(
            "--tui needs a terminal; without it the tables go to a pipe".to_owned(),
        ));
    }
    let mut view = View {
        now: first,
        before: None,
        over: None,
        scroll: 0,
        paused: false,
        colour: talk::may_colour(&io::stdout()),
    };
    let failed = |error| Stop::because("the terminal fails", error);
    let mut terminal = ratatui::try_init().map_err(failed)?;
    let done = (|| {
        loop {
            terminal.draw(|frame| draw(frame, &mut view))?;
            let next = Instant::now() + pause;
            loop {
                let left = next.saturating_duration_since(Instant::now());
                if left.is_zero() && !view.paused {
                    break;
                }
                if !event::poll(if view.paused { pause } else { left })? {
                    continue;
                }
                match event::read()? {
                    Event::Key(key) => match wish(key) {
                        Wish::Quit => return Ok(()),
                        Wish::Scroll(lines) => view.scroll_by(lines),
                        Wish::Pause => view.paused = !view.paused,
                        Wish::Nothing => {}
                    },
                    Event::Resize(..) => {}
                    _ => continue,
                }
                terminal.draw(|frame| draw(frame, &mut view))?;
            }
            view.look(watched);
        }
    })();
    ratatui::restore();
    done.map_err(failed)
}

impl View {
    fn look(&mut self, watched: &mut Watched) {
        match watched.look() {
            Ok(look) => {
                self.before = Some(std::mem::replace(&mut self.now, look));
                self.over = None;
            }
            Err(no_look) => self.over = Some(no_look),
        }
    }

    fn scroll_by(&mut self, lines: i32) {
        self.scroll = u16::try_from(i32::from(self.scroll) + lines).unwrap_or(0);
    }

    fn lines(&self) -> Vec<Line<'static>> {
        let alarm = if self.colour {
            Style::new().fg(Color::Red).add_modifier(Modifier::BOLD)
        } else {
            Style::new().add_modifier(Modifier::BOLD)
        };
        let mut lines = Vec::new();
        for table in tables(&self.now, self.before.as_ref()) {
            for (i, cells) in lay_out(&table).into_iter().enumerate() {
                let spans = cells
                    .into_iter()
                    .map(|(text, is_alarm)| match (i, is_alarm) {
                        (0, _) => Span::styled(text, Style::new().add_modifier(Modifier::BOLD)),
                        (_, true) => Span::styled(text, alarm),
                        (_, false) => Span::raw(text),
                    });
                lines.push(Line::from(spans.collect::<Vec<_>>()));
            }
            lines.push(Line::default());
        }
        lines
    }
}

fn wish(key: KeyEvent) -> Wish {
    if key.kind == KeyEventKind::Release {
        return Wish::Nothing;
    }
    match key.code {
        KeyCode::Char('c') if key.modifiers.contains(KeyModifiers::CONTROL) => Wish::Quit,
        KeyCode::Char('q') | KeyCode::Esc => Wish::Quit,
        KeyCode::Char('p' | ' ') => Wish::Pause,
        KeyCode::Down | KeyCode::Char('j') => Wish::Scroll(1),
        KeyCode::Up | KeyCode::Char('k') => Wish::Scroll(-1),
        KeyCode::PageDown => Wish::Scroll(10),
        KeyCode::PageUp => Wish::Scroll(-10),
        _ => Wish::Nothing,
    }
}

fn draw(frame: &mut Frame<'_>, view: &mut View) {
    let [head, body, foot] = Layout::vertical([
        Constraint::Length(2),
        Constraint::Min(1),
        Constraint::Length(1),
    ])
    .areas(frame.area());
    let mut line = headline(&view.now);
    if let Some(over) = &view.over {
        line = format!("{line}: {}", over.reason());
    }
    frame.render_widget(Paragraph::new(line), head);
    let lines = view.lines();
    let last = u16::try_from(lines.len()).unwrap_or(u16::MAX);
    view.scroll = view.scroll.min(last.saturating_sub(body.height));
    frame.render_widget(Paragraph::new(lines).scroll((view.scroll, 0)), body);
    let help = if view.paused {
        format!("{HELP} PAUSED")
    } else {
        HELP.to_owned()
    };
    frame.render_widget(
        Paragraph::new(help).style(Style::new().add_modifier(Modifier::REVERSED)),
        foot,
    );
}

#[cfg(test)]
mod tests {
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    use super::*;
    use crate::tools::top::look::stalled_sample;

    fn view() -> View {
        View {
            now: stalled_sample(),
            before: None,
            over: None,
            scroll: 0,
            paused: false,
            colour: true,
        }
    }

    #[test]
    fn a_stall_is_red_and_the_rest_is_there() {
        let mut terminal = Terminal::new(TestBackend::new(140, 30)).unwrap();
        terminal.draw(|frame| draw(frame, &mut view())).unwrap();
        let buffer = terminal.backend().buffer();
        let cells = buffer.content();
        let shown: String = cells.iter().map(|cell| cell.symbol()).collect();
        for word in [
            "process 7 (sample)",
            "mail-in",
            "stalled ms",
            "31000",
            "q ends",
        ] {
            assert!(shown.contains(word), "{word} is missing in {shown}");
        }
        let red = cells.iter().filter(|cell| cell.fg == Color::Red);
        let red: String = red.map(|cell| cell.symbol()).collect();
        assert!(red.contains("31000") && !red.contains("mail-in"), "{red}");
    }

    #[test]
    fn scrolling_ends_where_the_lines_do() {
        let mut view = view();
        view.scroll_by(-5);
        assert_eq!(view.scroll, 0);
        view.scroll_by(1000);
        let mut terminal = Terminal::new(TestBackend::new(20, 5)).unwrap();
        terminal.draw(|frame| draw(frame, &mut view)).unwrap();
        assert_eq!(usize::from(view.scroll), view.lines().len() - 2);
    }

    #[test]
    fn keys_do_what_the_foot_says() {
        let key = |code| wish(KeyEvent::new(code, KeyModifiers::NONE));
        assert_eq!(key(KeyCode::Char('q')), Wish::Quit);
        assert_eq!(key(KeyCode::Down), Wish::Scroll(1));
        assert_eq!(key(KeyCode::Char('p')), Wish::Pause);
        let interrupt = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
        assert_eq!(wish(interrupt), Wish::Quit);
    }
}
