//! The state of a connection and its streams. No I/O: the task feeds it frames and takes frames from it.
//!
//! A stream's entry lives until both its halves are dropped and both ends have ended it (or one has reset it).

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use tokio::sync::{Notify, mpsc};
use tokio::time::Instant;

use super::budget::Kept;
use super::{Closed, Limits, OpenError, Role};
use crate::spdy::{Frame, Headers, Status};

/// What a piece of data costs beside its bytes, so that many tiny ones are not for free.
const PIECE_COST: usize = 64;
/// A shorter piece is copied: it would keep the whole buffer that it was read into, of which it has less than half.
const COPIED: usize = 16 << 10;
/// Longest data frame that we send: what Go's readers take at once.
const MAX_PIECE: usize = 32 << 10;
/// Bytes that the task takes at once.
const BATCH: usize = 64 << 10;
/// Answers that may wait for a peer that does not read.
const MAX_ANSWERS: usize = 4096;
/// Stream ids have 31 bits.
const MAX_ID: u32 = 0x7fff_ffff;

#[derive(Debug)]
pub(super) struct State {
    role: Role,
    limits: Limits,
    streams: BTreeMap<u32, Entry>,
    /// Highest id that the peer has used.
    last_remote: u32,
    next_local: u32,
    arrived: Option<mpsc::Sender<(u32, Headers)>>,
    outgoing: VecDeque<Frame>,
    /// Bytes of data that have not left: in `outgoing`, and taken but not [`State::sent`].
    unsent: usize,
    /// Control frames in `outgoing`.
    answers: usize,
    /// What all streams keep for their readers. Behind them, so that they are gone when its end is told.
    kept: Kept,
    finishing: bool,
    closed: Option<Closed>,
    last_activity: Instant,
}

#[derive(Debug, Default)]
struct Entry {
    kept: VecDeque<Bytes>,
    kept_cost: usize,
    reader: Option<Waker>,
    writer: Option<Waker>,
    replied: bool,
    remote_fin: bool,
    local_fin: bool,
    reset: Option<Status>,
    reader_gone: bool,
    writer_gone: bool,
}

/// What the task is to do next.
#[derive(Debug)]
pub(super) enum Batch {
    /// Write these frames, then say [`State::sent`].
    Frames { frames: Vec<Frame>, data: usize },
    /// Nothing yet.
    Wait,
    /// Close the transport.
    End,
}

// === impl State: the task's side ===

impl State {
    pub(super) fn new(role: Role, limits: Limits, arrived: mpsc::Sender<(u32, Headers)>) -> Self {
        Self {
            role,
            kept: Kept::new(limits.budget.clone()),
            limits,
            streams: BTreeMap::new(),
            last_remote: 0,
            next_local: if role == Role::Client { 1 } else { 2 },
            arrived: Some(arrived),
            outgoing: VecDeque::new(),
            unsent: 0,
            answers: 0,
            finishing: false,
            closed: None,
            last_activity: Instant::now(),
        }
    }

    /// A frame came.
    pub(super) fn receive(&mut self, frame: Frame) -> Result<(), Closed> {
        if self.finishing {
            return Ok(());
        }
        match frame {
            Frame::SynStream { id, fin, unidirectional, headers, .. } => self.arrive(id, fin, unidirectional, headers),
            Frame::SynReply { id, fin, .. } => self.replied(id, fin),
            Frame::Data { id, fin, payload } => self.data(id, fin, payload),
            Frame::RstStream { id, status } => self.end(id, status),
            Frame::Headers { id, fin, .. } => {
                if fin {
                    self.data(id, true, Bytes::new());
                }
            }
            // Only the peer's own pings are asked; ours come back.
            Frame::Ping { id } if (id % 2 == 1) == (self.role == Role::Server) => self.answer(Frame::Ping { id }),
            // After GOAWAY the peer closes the connection. Windows and settings are hints that Go's peers do not heed.
            Frame::Ping { .. } | Frame::Goaway { .. } | Frame::WindowUpdate { .. } | Frame::Settings(_) => {}
        }
        if self.answers > MAX_ANSWERS { Err(Closed::Flooded) } else { Ok(()) }
    }

    /// Whether readers must read before more can be taken from the peer.
    pub(super) fn is_full(&self) -> bool {
        !self.finishing
            && (self.kept.is_beyond(self.limits.connection)
                || self.streams.values().any(|entry| entry.kept_cost > self.limits.stream))
    }

    /// What tells that other connections have given something back.
    pub(super) fn freed(&self) -> Arc<Notify> {
        self.kept.freed()
    }

    pub(super) fn take(&mut self) -> Batch {
        let mut frames = Vec::new();
        let mut data = 0;
        while data < BATCH {
            let Some(frame) = self.outgoing.pop_front() else { break };
            match &frame {
                Frame::Data { payload, .. } => data += payload.len(),
                _ => self.answers -= 1,
            }
            frames.push(frame);
        }
        match frames.is_empty() {
            false => Batch::Frames { frames, data },
            true if self.finishing => Batch::End,
            true => Batch::Wait,
        }
    }

    /// A batch with so many bytes of data has left: writers may go on.
    pub(super) fn sent(&mut self, data: usize) {
        self.unsent -= data;
        self.touch();
        for entry in self.streams.values_mut() {
            wake(&mut entry.writer);
        }
    }

    pub(super) fn touch(&mut self) {
        self.last_activity = Instant::now();
    }

    /// When the connection has been idle for too long, if nothing happens until then.
    pub(super) fn idle_at(&self) -> Instant {
        self.last_activity + self.limits.idle
    }

    pub(super) fn idle(&self) -> Closed {
        Closed::Idle(self.limits.idle)
    }

    /// Asks the peer for a sign of life, unless something waits to be written anyway.
    pub(super) fn ping(&mut self) {
        if self.outgoing.is_empty() {
            self.answer(Frame::Ping { id: if self.role == Role::Client { 1 } else { 2 } });
        }
    }

    /// Last words to a peer that leaves, or cannot be understood.
    pub(super) fn give_up(&mut self, status: u32) {
        self.answer(Frame::Goaway { last_good: self.last_remote, status });
        self.finishing = true;
    }

    pub(super) fn close(&mut self, why: Closed) {
        self.arrived = None;
        if self.closed.is_some() {
            return;
        }
        self.closed = Some(why);
        for entry in self.streams.values_mut() {
            wake(&mut entry.reader);
            wake(&mut entry.writer);
        }
    }

    pub(super) fn why_closed(&self) -> Option<Closed> {
        self.closed.clone()
    }

    fn arrive(&mut self, id: u32, fin: bool, unidirectional: bool, headers: Headers) {
        let theirs = (id % 2 == 1) == (self.role == Role::Server);
        if !theirs || id <= self.last_remote {
            // Both ends then agree that there is no such stream, be it a second one or not.
            self.end(id, Status::PROTOCOL_ERROR);
            return self.answer(Frame::RstStream { id, status: Status::PROTOCOL_ERROR });
        }
        self.last_remote = id;
        let room = self.streams.len() < self.limits.streams;
        let arrived = self.arrived.as_ref().filter(|_| room).map(|arrived| arrived.try_send((id, headers)));
        if !matches!(arrived, Some(Ok(()))) {
            return self.answer(Frame::RstStream { id, status: Status::REFUSED_STREAM });
        }
        self.streams.insert(id, Entry { remote_fin: fin, local_fin: unidirectional, ..Entry::default() });
    }

    fn replied(&mut self, id: u32, fin: bool) {
        let Some(entry) = self.streams.get_mut(&id).filter(|_| self.role.opens(id)) else { return self.unknown(id) };
        if entry.replied {
            self.end(id, Status::STREAM_IN_USE);
            return self.answer(Frame::RstStream { id, status: Status::STREAM_IN_USE });
        }
        entry.replied = true;
        entry.remote_fin |= fin;
        wake(&mut entry.reader);
        self.reap(id);
    }

    fn data(&mut self, id: u32, fin: bool, payload: Bytes) {
        let Some(entry) = self.streams.get_mut(&id) else { return self.unknown(id) };
        if entry.reset.is_some() {
            return;
        }
        if entry.remote_fin {
            self.end(id, Status::STREAM_ALREADY_CLOSED);
            return self.answer(Frame::RstStream { id, status: Status::STREAM_ALREADY_CLOSED });
        }
        if !entry.reader_gone && !payload.is_empty() {
            let cost = cost(&payload);
            entry.kept.push_back(if payload.len() < COPIED { Bytes::copy_from_slice(&payload) } else { payload });
            entry.kept_cost += cost;
            self.kept.add(cost);
        }
        entry.remote_fin = fin;
        wake(&mut entry.reader);
        self.reap(id);
    }

    /// Marks a stream as reset. What came before can still be read.
    fn end(&mut self, id: u32, status: Status) {
        let Some(entry) = self.streams.get_mut(&id) else { return };
        entry.reset.get_or_insert(status);
        wake(&mut entry.reader);
        wake(&mut entry.writer);
        self.reap(id);
    }

    /// A frame for a stream that is not there. It may be one that has just ended here: the peer cannot know that yet.
    fn unknown(&mut self, id: u32) {
        let was_there = if self.role.opens(id) { id < self.next_local } else { id <= self.last_remote };
        if !was_there {
            self.answer(Frame::RstStream { id, status: Status::INVALID_STREAM });
        }
    }

    fn answer(&mut self, frame: Frame) {
        self.answers += 1;
        self.outgoing.push_back(frame);
    }

    fn reap(&mut self, id: u32) {
        if self.streams.get(&id).is_some_and(Entry::is_over) {
            self.streams.remove(&id);
        }
    }
}

// === impl State: the owner's side ===

impl State {
    pub(super) fn open(&mut self, headers: Headers) -> Result<u32, OpenError> {
        if let Some(why) = self.closed.clone().or(self.finishing.then_some(Closed::Finished)) {
            return Err(why.into());
        }
        let id = self.next_local;
        if id > MAX_ID {
            return Err(OpenError::NoIds);
        }
        self.next_local += 2;
        self.streams.insert(id, Entry::default());
        self.answer(Frame::SynStream { id, associated: 0, priority: 0, fin: false, unidirectional: false, headers });
        Ok(id)
    }

    pub(super) fn poll_reply(&mut self, id: u32, context: &Context<'_>) -> Poll<Result<(), OpenError>> {
        let Some(entry) = self.streams.get_mut(&id) else {
            return Poll::Ready(Err(OpenError::Refused(Status::CANCEL)));
        };
        if entry.replied {
            return Poll::Ready(Ok(()));
        }
        if let Some(status) = entry.reset {
            return Poll::Ready(Err(OpenError::Refused(status)));
        }
        if let Some(why) = &self.closed {
            return Poll::Ready(Err(why.clone().into()));
        }
        entry.reader = Some(context.waker().clone());
        Poll::Pending
    }

    pub(super) fn accept(&mut self, id: u32) {
        if let Some(entry) = self.streams.get_mut(&id)
            && entry.reset.is_none()
            && !self.finishing
        {
            entry.replied = true;
            self.answer(Frame::SynReply { id, fin: false, headers: Headers::new() });
        }
    }

    pub(super) fn refuse(&mut self, id: u32, status: Status) {
        self.reset(id, status);
        self.drop_reader(id);
        self.drop_writer(id);
    }

    /// Ends a stream in both directions at once. Does nothing if it is over.
    pub(super) fn reset(&mut self, id: u32, status: Status) {
        let Some(entry) = self.streams.get_mut(&id) else { return };
        if entry.reset.is_none() && !(entry.remote_fin && entry.local_fin) && !self.finishing {
            self.end(id, status);
            self.answer(Frame::RstStream { id, status });
        }
    }

    /// Says that nothing more comes. Fine if said before.
    pub(super) fn end_writing(&mut self, id: u32) {
        let Some(entry) = self.streams.get_mut(&id) else { return };
        if !entry.local_fin && entry.reset.is_none() {
            entry.local_fin = true;
            self.outgoing.push_back(Frame::Data { id, fin: true, payload: Bytes::new() });
            wake(&mut entry.writer);
            self.reap(id);
        }
    }

    pub(super) fn poll_read(&mut self, id: u32, room: usize, context: &Context<'_>) -> Poll<io::Result<Bytes>> {
        let Some(entry) = self.streams.get_mut(&id) else { return Poll::Ready(Ok(Bytes::new())) };
        if let Some(piece) = entry.kept.front_mut() {
            let whole = cost(piece);
            let taken = piece.split_to(piece.len().min(room));
            let left = if piece.is_empty() { 0 } else { cost(piece) };
            entry.kept_cost -= whole - left;
            self.kept.give_back(whole - left);
            if left == 0 {
                entry.kept.pop_front();
            }
            return Poll::Ready(Ok(taken));
        }
        let over = match (&self.closed, entry.reset) {
            _ if entry.remote_fin => Ok(Bytes::new()),
            (_, Some(status)) => {
                Err(io::Error::new(io::ErrorKind::ConnectionReset, format!("stream was reset: {status}")))
            }
            (Some(Closed::Finished), None) => Ok(Bytes::new()),
            (Some(why), None) => Err(io::Error::new(io::ErrorKind::ConnectionAborted, why.clone())),
            (None, None) => {
                entry.reader = Some(context.waker().clone());
                return Poll::Pending;
            }
        };
        Poll::Ready(over)
    }

    pub(super) fn poll_write(&mut self, id: u32, bytes: &[u8], context: &Context<'_>) -> Poll<io::Result<usize>> {
        let broken = |why: &str| Poll::Ready(Err(io::Error::new(io::ErrorKind::BrokenPipe, why)));
        let Some(entry) = self.streams.get_mut(&id) else { return broken("stream is over") };
        if let Some(why) = &self.closed {
            return Poll::Ready(Err(io::Error::new(io::ErrorKind::BrokenPipe, why.clone())));
        }
        if let Some(status) = entry.reset {
            let reset = io::Error::new(io::ErrorKind::ConnectionReset, format!("stream was reset: {status}"));
            return Poll::Ready(Err(reset));
        }
        if entry.local_fin {
            return broken("stream was ended");
        }
        if self.unsent >= self.limits.outgoing {
            entry.writer = Some(context.waker().clone());
            return Poll::Pending;
        }
        let len = bytes.len().min(MAX_PIECE);
        let piece = bytes.get(..len).unwrap_or_default();
        if len > 0 {
            self.unsent += len;
            self.outgoing.push_back(Frame::Data { id, fin: false, payload: Bytes::copy_from_slice(piece) });
        }
        Poll::Ready(Ok(len))
    }

    pub(super) fn drop_reader(&mut self, id: u32) {
        let Some(entry) = self.streams.get_mut(&id) else { return };
        entry.reader_gone = true;
        entry.kept.clear();
        self.kept.give_back(std::mem::take(&mut entry.kept_cost));
        self.reap(id);
    }

    pub(super) fn drop_writer(&mut self, id: u32) {
        self.end_writing(id);
        if let Some(entry) = self.streams.get_mut(&id) {
            entry.writer_gone = true;
        }
        self.reap(id);
    }

    /// Ends every stream, then the connection.
    pub(super) fn finish(&mut self) {
        if self.finishing {
            return;
        }
        self.arrived = None;
        let ids: Vec<(u32, bool)> = self.streams.iter().map(|(id, entry)| (*id, entry.replied)).collect();
        for (id, replied) in ids {
            if replied {
                self.end_writing(id);
            } else {
                self.reset(id, Status::CANCEL);
            }
        }
        self.answer(Frame::Goaway { last_good: self.last_remote, status: 0 });
        self.finishing = true;
    }
}

// === impl Entry ===

impl Entry {
    fn is_over(&self) -> bool {
        self.reader_gone && self.writer_gone && (self.reset.is_some() || (self.remote_fin && self.local_fin))
    }
}

// === impl Role ===

impl Role {
    /// Whether a stream of this id is opened by this end.
    fn opens(self, id: u32) -> bool {
        (id % 2 == 1) == (self == Self::Client)
    }
}

fn cost(piece: &Bytes) -> usize {
    piece.len() + PIECE_COST
}

fn wake(waker: &mut Option<Waker>) {
    if let Some(waker) = waker.take() {
        waker.wake();
    }
}
