//! Responses as bytes on a connection, complete or broken.

use std::io::{self, Write};
use std::net::TcpStream;
use std::time::Duration;

use super::answer::{End, Frame, Plan};
use super::message::Response;

/// The size of the writes of a body, in bytes.
const PIECE_BYTES: usize = 64 * 1024;

/// The size after which an endless body is cut off, in bytes; more than any client should read.
const ENDLESS_BYTES: usize = 8 << 30;

/// The state of the connection after a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sent {
    /// The connection can be used for the next request.
    Whole,
    /// The connection is closed.
    Over,
}

/// An observer of the progress of a response, called always before the client can see it.
pub trait Progress {
    /// The next `bytes` of the body are about to be sent; `is_end` if they are the last.
    fn sends(&self, bytes: u64, is_end: bool);

    /// Waits for `time`, or forever; `false` if the client has disconnected.
    fn wait(&self, time: Option<Duration>) -> bool;
}

/// Writes a response.
///
/// # Errors
/// If the client has disconnected.
pub fn send(
    stream: &TcpStream,
    response: &Response,
    plan: &Plan,
    has_body: bool,
    progress: &dyn Progress,
) -> io::Result<Sent> {
    let mut out = stream;
    if plan.is_garbage {
        progress.sends(0, true);
        out.write_all(b"220 this is no web server\r\n\r\n")?;
        return Ok(Sent::Over);
    }
    if plan.end != End::Right && plan.after.is_none() {
        return end(stream, plan.end, progress);
    }
    let body = if has_body { response.body() } else { &[] };
    let frame = match response.status {
        204 | 304 => Frame::Length,
        _ => plan.frame,
    };
    let mut head = response.head();
    head += &match frame {
        Frame::Length => format!("Content-Length: {}\r\n\r\n", response.body().len()),
        Frame::Chunks => "Transfer-Encoding: chunked\r\n\r\n".to_owned(),
        Frame::Connection => "Connection: close\r\n\r\n".to_owned(),
    };
    let is_cut = plan.end != End::Right && !body.is_empty();
    let ends_with_body = frame == Frame::Length && !is_cut;
    progress.sends(0, body.is_empty() && (ends_with_body || !has_body));
    out.write_all(head.as_bytes())?;

    let until = match plan.after {
        Some(after) if is_cut => after.min(body.len() - 1),
        _ => body.len(),
    };
    let step = if plan.drip.is_some() { 1 } else { PIECE_BYTES };
    let mut sent = 0;
    for piece in body[..until].chunks(step) {
        if let Some(each) = plan.drip
            && !progress.wait(Some(each))
        {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        sent += piece.len();
        progress.sends(piece.len() as u64, ends_with_body && sent == until);
        write_piece(out, piece, frame)?;
    }
    if plan.is_endless && has_body {
        for _ in 0..ENDLESS_BYTES / PIECE_BYTES {
            progress.sends(PIECE_BYTES as u64, false);
            write_piece(out, &[0x55; PIECE_BYTES], frame)?;
        }
    }
    if is_cut {
        return end(stream, plan.end, progress);
    }
    match frame {
        Frame::Length => return Ok(Sent::Whole),
        Frame::Chunks if !has_body => return Ok(Sent::Whole),
        Frame::Chunks | Frame::Connection => progress.sends(0, true),
    }
    match frame {
        Frame::Chunks => out.write_all(b"0\r\n\r\n").map(|()| Sent::Whole),
        _ => Ok(Sent::Over),
    }
}

fn write_piece(mut out: &TcpStream, piece: &[u8], frame: Frame) -> io::Result<()> {
    if frame != Frame::Chunks {
        return out.write_all(piece);
    }
    let mut framed = format!("{:x}\r\n", piece.len()).into_bytes();
    framed.extend_from_slice(piece);
    framed.extend_from_slice(b"\r\n");
    out.write_all(&framed)
}

/// Ends a connection according to the plan.
fn end(stream: &TcpStream, end: End, progress: &dyn Progress) -> io::Result<Sent> {
    if end == End::Stall {
        progress.wait(None);
        return Ok(Sent::Over);
    }
    progress.sends(0, true);
    if end == End::Reset {
        reset_on_close(stream)?;
    }
    Ok(Sent::Over)
}

/// Makes the connection end with RST when it is closed.
pub fn reset_on_close(stream: &TcpStream) -> io::Result<()> {
    let at_once = Some(Duration::ZERO);
    Ok(rustix::net::sockopt::set_socket_linger(stream, at_once)?)
}
