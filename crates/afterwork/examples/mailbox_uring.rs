//! An io_uring loop that owns a socket and receives answers from other threads.
//!
//! One call waits for completions and for posts: a multishot request polls the mailbox's eventfd.
//! `cargo run --release --features io-uring --example mailbox_uring`

use std::error::Error;
use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::thread;

use afterwork::mailbox::{Mailbox, uring};
use io_uring::{IoUring, opcode, types};

const QUESTION: u64 = 1;
const ANSWER: u64 = 2;
const BELL: u64 = 3;

/// The number of answers that are sent before the loop checks its completions again.
const BATCH: usize = 16;
const NR_QUESTIONS: u32 = 1000;

fn main() -> Result<(), Box<dyn Error>> {
    let (socket, mut client) = UnixStream::pair()?;
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

    // One buffer for each direction is enough, because there is one question at a time. The ring is
    // dropped before the buffers.
    let mut question = [0_u8; 4];
    let mut answer = [0_u8; 8];
    let mut mailbox = Mailbox::new();
    let poster = mailbox.poster();
    let mut ring: IoUring = IoUring::builder().setup_single_issuer().build(64)?;
    let socket_fd = types::Fd(socket.as_raw_fd());
    let ask = |buffer: &mut [u8; 4]| {
        let receive = opcode::Recv::new(socket_fd, buffer.as_mut_ptr(), buffer.len() as u32);
        receive.build().user_data(QUESTION)
    };

    let mut to_submit = vec![ask(&mut question), uring::poll_entry(&mailbox, BELL)?];
    let mut is_open = true;
    let mut nr_rung = 0_u32;
    while is_open {
        for entry in to_submit.drain(..) {
            // SAFETY: the buffers, the socket and the mailbox outlive the ring, which is dropped
            // first. A buffer is not accessed between a request and its completion.
            unsafe { ring.submission().push(&entry)? };
        }
        // If this is `false`, there is something to receive already.
        let may_sleep = mailbox.arm(1)?;
        ring.submit_and_wait(usize::from(may_sleep))?;
        mailbox.disarm();

        for completion in ring.completion() {
            match completion.user_data() {
                QUESTION if completion.result() <= 0 => is_open = false,
                QUESTION => {
                    let (poster, number) =
                        (poster.clone(), u64::from(u32::from_ne_bytes(question)));
                    // A placeholder for long work on a pool of threads.
                    thread::spawn(move || poster.post(number * number));
                    to_submit.push(ask(&mut question));
                }
                BELL => {
                    nr_rung += 1;
                    if uring::ended(&completion) {
                        to_submit.push(uring::poll_entry(&mailbox, BELL)?);
                    }
                }
                _sent => assert_eq!(completion.result(), answer.len() as i32),
            }
        }
        for number in mailbox.drain(BATCH) {
            answer = number.to_ne_bytes();
            let send = opcode::Send::new(socket_fd, answer.as_ptr(), answer.len() as u32);
            to_submit.push(send.build().user_data(ANSWER));
        }
    }
    let sum = client.join().expect("the client panicked")?;
    assert_eq!(sum, (0..u64::from(NR_QUESTIONS)).map(|number| number * number).sum::<u64>());
    println!("{NR_QUESTIONS} answers, sum {sum}; {nr_rung} wake-ups by the eventfd");
    Ok(())
}
