//! Answers as bytes on a connection, right to the end or not.

use std::io::{self, Write};
use std::net::TcpStream;
use std::time::Duration;

use super::answer::{End, Frame, Plan};
use super::message::Response;

/// Bodies are written in pieces of this size.
const PIECE_BYTES: usize = 64 * 1024;

/// More than anybody should take of a body that does not end.
const ENDLESS_BYTES: u64 = 8 << 30;

/// What became of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sent {
    /// The connection can take the next request.
    Whole,
    /// The connection is over.
    Over,
}

/// Writes an answer. `sent` counts bytes of the body; `wait` waits as long as it is told, or for
/// ever, and says whether the client is still there.
///
/// # Errors
/// If the client has gone.
pub fn send(
    stream: &TcpStream,
    response: &Response,
    plan: &Plan,
    has_body: bool,
    sent: &mut u64,
    wait: &dyn Fn(Option<Duration>) -> bool,
) -> io::Result<Sent> {
    let mut out = stream;
    if plan.is_garbage {
        out.write_all(b"220 this is no web server\r\n\r\n")?;
        return Ok(Sent::Over);
    }
    if plan.end != End::Right && plan.after.is_none() {
        return end(stream, plan.end, wait);
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
    out.write_all(head.as_bytes())?;

    let is_cut = plan.end != End::Right && !body.is_empty();
    let until = match plan.after {
        Some(after) if is_cut => after.min(body.len() - 1),
        _ => body.len(),
    };
    let step = if plan.drip.is_some() { 1 } else { PIECE_BYTES };
    for piece in body[..until].chunks(step) {
        if let Some(each) = plan.drip
            && !wait(Some(each))
        {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        write_piece(out, piece, frame)?;
        *sent += piece.len() as u64;
    }
    while plan.is_endless && has_body && *sent < ENDLESS_BYTES {
        write_piece(out, &[0x55; PIECE_BYTES], frame)?;
        *sent += PIECE_BYTES as u64;
    }
    if is_cut {
        return end(stream, plan.end, wait);
    }
    match frame {
        Frame::Length => Ok(Sent::Whole),
        Frame::Chunks if !has_body => Ok(Sent::Whole),
        Frame::Chunks => out.write_all(b"0\r\n\r\n").map(|()| Sent::Whole),
        Frame::Connection => Ok(Sent::Over),
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

/// Ends a connection as the plan says.
fn end(stream: &TcpStream, end: End, wait: &dyn Fn(Option<Duration>) -> bool) -> io::Result<Sent> {
    match end {
        End::Right | End::Close => {}
        End::Reset => reset_on_close(stream)?,
        End::Stall => _ = wait(None),
    }
    Ok(Sent::Over)
}

/// Has the connection end with RST when it is closed.
pub fn reset_on_close(stream: &TcpStream) -> io::Result<()> {
    let at_once = Some(Duration::ZERO);
    Ok(rustix::net::sockopt::set_socket_linger(stream, at_once)?)
}
