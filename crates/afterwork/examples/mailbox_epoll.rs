//! An event loop that owns a socket and receives answers from other threads.
//!
//! The loop sleeps in `epoll_wait` until the socket is ready or a post arrives. The mailbox's
//! eventfd is signaled only while the loop sleeps. `cargo run --release --example mailbox_epoll`

use std::error::Error;
use std::io::{Read, Write};
use std::mem::MaybeUninit;
use std::os::unix::net::UnixStream;
use std::thread;

use afterwork::mailbox::Mailbox;
use rustix::event::epoll::{self, EventData, EventFlags};

const SOCKET: u64 = 1;
const BELL: u64 = 2;

/// The number of answers that are sent before the loop polls its socket again.
const BATCH: usize = 16;
const NR_QUESTIONS: u32 = 1000;

fn main() -> Result<(), Box<dyn Error>> {
    let (mut socket, mut client) = UnixStream::pair()?;
    socket.set_nonblocking(true)?;
    let client = thread::spawn(move || -> std::io::Result<u64> {
        let mut sum = 0;
        for number in 0..NR_QUESTIONS {
            client.write_all(&number.to_ne_bytes())?;
            let mut answer = [0; 8];
            client.read_exact(&mut answer)?;
            sum += u64::from_ne_bytes(answer);
        }
        Ok(sum)
    });

    let mut mailbox = Mailbox::new();
    let poster = mailbox.poster();
    let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    epoll::add(&epoll, &socket, EventData::new_u64(SOCKET), EventFlags::IN)?;
    // Edge-triggered: each signal is reported once, and the eventfd need not be read.
    let flags = EventFlags::IN | EventFlags::ET;
    epoll::add(&epoll, mailbox.eventfd()?, EventData::new_u64(BELL), flags)?;

    let mut nr_rung = 0_u32;
    let mut is_open = true;
    while is_open {
        // If this is `false`, there is something to receive already, so the wait must not sleep.
        let may_sleep = mailbox.arm(1)?;
        let no_time = rustix::time::Timespec { tv_sec: 0, tv_nsec: 0 };
        let mut events = [MaybeUninit::<epoll::Event>::uninit(); 8];
        let (events, _) = epoll::wait(&epoll, &mut events, (!may_sleep).then_some(&no_time))?;
        nr_rung += u32::from(mailbox.disarm() && may_sleep);

        for event in events.iter() {
            if event.data.u64() == SOCKET {
                let mut question = [0; 4];
                match socket.read(&mut question)? {
                    0 => is_open = false,
                    // The client asks one question at a time, so a read returns a whole one.
                    _ => {
                        let number = u64::from(u32::from_ne_bytes(question));
                        let poster = poster.clone();
                        // A placeholder for long work on a pool of threads.
                        thread::spawn(move || poster.post(number * number));
                    }
                }
            }
        }
        for answer in mailbox.drain(BATCH) {
            socket.write_all(&answer.to_ne_bytes())?;
        }
    }
    let sum = client.join().expect("the client panicked")?;
    assert_eq!(sum, (0..u64::from(NR_QUESTIONS)).map(|number| number * number).sum::<u64>());
    println!("{NR_QUESTIONS} answers, sum {sum}; {nr_rung} wake-ups by the eventfd");
    Ok(())
}
