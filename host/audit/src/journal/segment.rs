//! A segment of a journal: a file of lines, and beside it a file of sealed requests and outcomes.
//!
//! Both only grow. A write that fails is undone before it is reported, so that a file ends with a whole line unless its
//! process was killed while it wrote.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufRead as _, BufReader, Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::{FileExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use cofferdam_core::private_file::{self, FilePolicy};
use jiff::Timestamp;
use rustix::fs::{AtFlags, CWD, FallocateFlags, OFlags, StatxFlags, statx};
use rustix::io::Errno;

use super::line::{ChainHead, JournalLine, SealedPlace};
use super::unended::UnendedCalls;
use crate::error::{AuditError, AuditErrorKind};
use crate::seal::Sealed;
use crate::settings::Durability;

/// Other users may neither read nor write the calls in it.
const POLICY: FilePolicy = FilePolicy::secret(u64::MAX);
const NOFOLLOW: i32 = OFlags::NOFOLLOW.bits().cast_signed();

/// The most bytes of a line. Each text of an event has a limit.
pub(crate) const LINE_BYTES: u64 = 64 * 1024 * 1024;

/// The first bytes of each segment.
const FIRST_LINE: &[u8] = b"{\"log\":{\"at\":\"";

/// The bytes that are read at once to find the last line.
const TAIL_BYTES: u64 = 16 * 1024;

/// Above so many bytes that no line has, the end of a segment is what a power cut left. One changed bit makes at most
/// four.
const CHANGED_BYTES: usize = 4;
/// The size of the parts of a file that can become holes, in most file systems.
const BLOCK: u64 = 4096;

/// The ending of the names of segments; before it stands the number of the first entry.
pub(super) const LINES: &str = "jsonl";
pub(super) const SEALED: &str = "sealed";

/// The ending of the name of the file with what power cuts left at the end of the segment.
pub(super) const TORN: &str = "torn";

/// A file that only grows.
#[derive(Debug)]
struct GrowingFile {
    path: PathBuf,
    file: File,
    /// Its device and inode, which no other file has while it is open.
    id: (u64, u64),
    length: u64,
}

impl GrowingFile {
    /// Opens the file, or creates it.
    fn open(path: PathBuf) -> Result<Self, AuditError> {
        let name = name_of(&path);
        let exists =
            private_file::check(&path, &POLICY).map_err(|error| AuditError::from_file(&name, error))?;
        let mut options = OpenOptions::new();
        options.append(true).read(true).create_new(!exists).mode(0o600).custom_flags(NOFOLLOW);
        let file = options.open(&path)?;
        let own = file.metadata()?;
        Ok(Self { path, file, id: (own.dev(), own.ino()), length: own.len() })
    }

    /// Opens the file once more, to wait until it is on the disk. The system reports a failed write to the disk once
    /// for each open file. A duplicate would share the report, which the thread that writes an entry must not miss.
    fn reopen(&self) -> Result<File, AuditError> {
        let flags = NOFOLLOW | OFlags::NONBLOCK.bits().cast_signed();
        let file = OpenOptions::new().read(true).custom_flags(flags).open(&self.path)?;
        self.check().map(|()| file)
    }

    /// Returns the time in the first line of a segment.
    fn begun_at(&self) -> io::Result<Option<Timestamp>> {
        let mut text = [0; 64];
        let read = self.file.read_at(&mut text, 0)?;
        let time = text.get(..read).and_then(|text| text.strip_prefix(FIRST_LINE)).unwrap_or_default();
        let time = time.split(|byte| *byte == b'"').next().and_then(|time| std::str::from_utf8(time).ok());
        Ok(time.and_then(|time| time.parse().ok()))
    }

    /// Appends the bytes, all of them or none.
    fn append(&mut self, bytes: &[u8]) -> Result<(), AppendError> {
        if bytes.is_empty() {
            return Ok(());
        }
        match self.file.write_all(bytes) {
            Ok(()) => {
                self.length = self.length.saturating_add(bytes.len() as u64);
                Ok(())
            }
            Err(error) => Err(self.undo(self.length, error)),
        }
    }

    /// Removes what was appended after this length. Returns false if that fails.
    fn cut(&mut self, length: u64) -> bool {
        let is_cut = self.file.set_len(length).is_ok();
        // Otherwise the next part is appended after what stays, and named by that place.
        let there = if is_cut { None } else { self.file.metadata().ok() };
        self.length = there.map_or(length, |own| own.len());
        is_cut
    }

    /// Removes what was appended after this length, since the write failed.
    fn undo(&mut self, length: u64, error: io::Error) -> AppendError {
        let is_undone = self.cut(length);
        AppendError { error: error.into(), is_undone }
    }

    /// Returns the length of the file at its path, if that is the open one.
    ///
    /// Asks for no times: Linux gives a file whose times were asked for a new one at the next write, and stores that in
    /// its inode, which costs more than the write (6.13 and later).
    fn length_in_place(&self) -> io::Result<Option<u64>> {
        let wanted = StatxFlags::INO | StatxFlags::SIZE;
        match statx(CWD, &self.path, AtFlags::SYMLINK_NOFOLLOW, wanted) {
            Ok(there) => {
                let device = rustix::fs::makedev(there.stx_dev_major, there.stx_dev_minor);
                Ok(((device, there.stx_ino) == self.id).then_some(there.stx_size))
            }
            Err(Errno::NOENT) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Checks that the open file is the one at its path, and that nothing else has written to it.
    fn check(&self) -> Result<(), AuditError> {
        let what = match self.length_in_place()? {
            Some(length) if length == self.length => return Ok(()),
            Some(_) => "was written by another program",
            None => "is not the file that was opened",
        };
        Err(AuditError::new(AuditErrorKind::Replaced, format_args!("{} {what}", name_of(&self.path))))
    }
}

fn name_of(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

/// A failed write.
#[derive(Debug)]
pub(super) struct AppendError {
    pub(super) error: AuditError,
    /// False if a part of the write may still be in the file, to which nothing may be appended any more.
    pub(super) is_undone: bool,
}

impl From<AuditError> for AppendError {
    /// The file is not the one that was opened, or its state is unknown.
    fn from(error: AuditError) -> Self {
        Self { error, is_undone: false }
    }
}

/// The end of a segment, as the next process finds it. By default, that of a journal without one.
#[derive(Debug, Default)]
pub(super) struct SegmentEnd {
    pub(super) head: ChainHead,
    /// The bytes without a line that were cut off.
    pub(super) cut_bytes: u64,
    /// The calls without an end.
    pub(super) unended: UnendedCalls,
    /// True if a line was changed that was signed for, or one before it.
    pub(super) is_changed: bool,
}

/// The lengths of a segment's files.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct SegmentLengths {
    lines: u64,
    sealed: u64,
}

/// The newest segment of a journal, to which entries are appended.
#[derive(Debug)]
pub(super) struct Segment {
    /// The number of the first entry.
    first: u64,
    /// The time of the first entry; none if the segment has no line yet, or one without a time.
    begun_at: Option<Timestamp>,
    lines: GrowingFile,
    /// None until the first sealed part.
    sealed: Option<GrowingFile>,
    /// True if the names of the files may not be on the disk yet.
    is_new: bool,
}

impl Segment {
    /// Creates the segment whose first entry has this number.
    pub(super) fn create(dir: &Path, first: u64) -> Result<Self, AuditError> {
        let path = path_of(dir, first, LINES);
        if path.try_exists()? {
            let what = format_args!("{} exists already", name_of(&path));
            return Err(AuditError::new(AuditErrorKind::Replaced, what));
        }
        Self::open(dir, first)
    }

    /// Opens an existing segment.
    pub(super) fn open(dir: &Path, first: u64) -> Result<Self, AuditError> {
        let path = path_of(dir, first, SEALED);
        let has_sealed = path.try_exists()?;
        // Before the lines, whose file is created.
        let sealed = has_sealed.then(|| GrowingFile::open(path)).transpose()?;
        let lines = GrowingFile::open(path_of(dir, first, LINES))?;
        let begun_at = lines.begun_at()?;
        Ok(Self { first, begun_at, lines, sealed, is_new: true })
    }

    /// Returns the lengths of the files.
    pub(super) fn lengths(&self) -> SegmentLengths {
        SegmentLengths { lines: self.length(), sealed: self.sealed_length() }
    }

    /// Removes what was appended since the files had these lengths. Returns false if a part of it may still be there.
    pub(super) fn cut(&mut self, lengths: SegmentLengths) -> bool {
        let is_cut = self.lines.cut(lengths.lines);
        // Sealed bytes that no line names are harmless; they only take space.
        if let Some(file) = &mut self.sealed {
            file.cut(lengths.sealed);
        }
        is_cut
    }

    /// Returns the number of the first entry.
    pub(super) fn first(&self) -> u64 {
        self.first
    }

    /// Returns true if the first entry was written longer ago, or by a clock that was further ahead.
    pub(super) fn is_further_than(&self, distance: Duration, now: Timestamp) -> bool {
        self.begun_at.is_some_and(|begun| now.duration_since(begun).unsigned_abs() > distance)
    }

    /// Notes the time of the first entry.
    pub(super) fn begins(&mut self, at: Timestamp) {
        self.begun_at = Some(at);
    }

    /// Returns the length of the lines in bytes.
    pub(super) fn length(&self) -> u64 {
        self.lines.length
    }

    /// Returns the length of the sealed parts in bytes, which is the position of the next one.
    pub(super) fn sealed_length(&self) -> u64 {
        self.sealed.as_ref().map_or(0, |sealed| sealed.length)
    }

    /// Appends lines, and before them the sealed parts that they name. All of it is appended, or nothing. With `Power`,
    /// it is on the disk then.
    pub(super) fn append(
        &mut self,
        lines: &[u8],
        sealed: &[u8],
        durability: Durability,
    ) -> Result<(), AppendError> {
        let before = self.lengths();
        let is_durable = durability == Durability::Power;
        if !sealed.is_empty() {
            let file = match &mut self.sealed {
                Some(file) => file,
                none => {
                    self.is_new = true;
                    let opened = GrowingFile::open(self.lines.path.with_extension(SEALED));
                    // Nothing was written.
                    none.insert(opened.map_err(|error| AppendError { error, is_undone: true })?)
                }
            };
            file.append(sealed)?;
            // Before the lines: after a power cut no line may name a part that is not there.
            if is_durable {
                file.file.sync_data().map_err(AuditError::from)?;
            }
        }
        if let Err(failed) = self.lines.append(lines) {
            if let Some(file) = &mut self.sealed {
                file.cut(before.sealed);
            }
            return Err(failed);
        }
        // Before it is acknowledged: an entry in a file that was replaced would be lost, and one after an entry of another
        // process would not be in the chain. The other files are checked when a statement is signed.
        if let Err(error) = self.lines.check() {
            // The file may be put back, with this entry.
            let is_own = self.lines.file.metadata().is_ok_and(|own| own.len() == self.lines.length);
            let is_undone = is_own && self.cut(before);
            return Err(AppendError { error, is_undone });
        }
        if is_durable && let Err(error) = self.sync() {
            // After a failed sync it is unknown what is on the disk: this segment gets no further entry.
            return Err(AppendError { is_undone: false, ..self.lines.undo(before.lines, error) });
        }
        Ok(())
    }

    /// Waits until the lines are on the disk, and the names of the files.
    fn sync(&mut self) -> io::Result<()> {
        self.lines.file.sync_data()?;
        if self.is_new {
            private_file::sync_dir(private_file::parent(&self.lines.path))?;
            self.is_new = false;
        }
        Ok(())
    }

    /// Returns the files, to wait until they are on the disk while more is written.
    pub(super) fn files(&self) -> Result<Vec<File>, AuditError> {
        let files = [Some(&self.lines), self.sealed.as_ref()].into_iter().flatten();
        let mut files = files.map(GrowingFile::reopen).collect::<Result<Vec<_>, _>>()?;
        // The names of new files are on the disk once the directory is.
        files.push(File::open(private_file::parent(&self.lines.path))?);
        Ok(files)
    }

    /// Returns true if the segment has no whole line, and no more than a killed process or a power cut leaves of a first
    /// one.
    pub(super) fn is_begun(&self) -> Result<bool, AuditError> {
        let bytes = self.bytes_from(0)?;
        let compared = bytes.len().min(FIRST_LINE.len());
        let is_first_line = bytes.get(..compared) == FIRST_LINE.get(..compared);
        Ok(match bytes.contains(&b'\n') {
            true => is_torn(&bytes),
            false => is_first_line || has_foreign_bytes(&bytes),
        })
    }

    /// Returns the lines from this position on.
    fn bytes_from(&self, position: u64) -> Result<Vec<u8>, AuditError> {
        Ok(read_part(&self.lines.file, position, u64::MAX)?)
    }

    /// Removes a segment without a line, and returns its length.
    pub(super) fn remove(self) -> Result<u64, AuditError> {
        let length = self.length();
        self.keep_torn(0)?;
        let files = [Some(self.lines), self.sealed];
        for file in files.into_iter().flatten() {
            fs::remove_file(&file.path)?;
        }
        Ok(length)
    }

    /// Removes a segment of which no line was acknowledged, so that it can be begun again.
    pub(super) fn discard(self) {
        for file in [Some(self.lines), self.sealed].into_iter().flatten() {
            if file.length_in_place().is_ok_and(|length| length.is_some()) {
                // If it stays, it has to be looked at.
                let _ = fs::remove_file(&file.path);
            }
        }
    }

    /// Checks that the open files are the ones at their paths.
    pub(super) fn check(&self) -> Result<(), AuditError> {
        self.lines.check()?;
        self.sealed.as_ref().map_or(Ok(()), GrowingFile::check)
    }

    /// Returns the end of the segment. What a killed process or a power cut left after the last line is cut off.
    ///
    /// None if a line does not follow the one before it, if the entry that was `signed` is not there, or if there is no
    /// whole line. Lines up to the signed entry may have been changed: the operator may have accepted that.
    pub(super) fn recover(&mut self, signed: Option<ChainHead>) -> Result<Option<SegmentEnd>, AuditError> {
        if let Some(end) = self.released_end(signed)? {
            return Ok(Some(end));
        }
        let Some(SegmentScan { end, length, is_signed }) = self.scan(signed)? else { return Ok(None) };
        // Nothing is cut off that contradicts a signed statement: it is evidence.
        if !is_signed {
            return Ok(None);
        }
        let cut_bytes = self.lines.length.saturating_sub(length);
        if cut_bytes > 0 {
            let torn = self.bytes_from(length)?;
            if !is_torn(&torn) || signed.is_none() && torn.contains(&b'\n') {
                return Ok(None);
            }
            self.keep_torn(length)?;
            self.lines.file.set_len(length)?;
            self.lines.length = length;
        }
        Ok(Some(SegmentEnd { cut_bytes, ..end }))
    }

    /// Returns the end of a segment whose process wrote that it is done with it, and that was signed then: no more than
    /// the last lines are read.
    fn released_end(&self, signed: Option<ChainHead>) -> Result<Option<SegmentEnd>, AuditError> {
        let (tail, start) = tail_of(&self.lines.file, self.lines.length)?;
        let Some(whole) = tail.strip_suffix(b"\n") else { return Ok(None) };
        let mut lines = whole.rsplit(|byte| *byte == b'\n');
        let Some(Ok(line)) = lines.next().map(|last| JournalLine::read(last).map(|line| (last, line))) else {
            return Ok(None);
        };
        let (last, line) = line;
        let before = ChainHead { n: line.n.saturating_sub(1), hash: line.prev().unwrap_or_default() };
        let follows = lines.next().map_or(start == 0, |text| ChainHead::at(before.n, text) == before);
        let head = before.after(last);
        let unended = UnendedCalls::after_release(&line).filter(|_| follows && signed == Some(head));
        Ok(unended.map(|unended| SegmentEnd { head, unended, ..SegmentEnd::default() }))
    }

    /// Reads the lines up to the first one after the signed entry that does not hold. None if there is no such line.
    fn scan(&self, signed: Option<ChainHead>) -> Result<Option<SegmentScan>, AuditError> {
        let mut file = &self.lines.file;
        file.seek(SeekFrom::Start(0))?;
        let mut reader = SegmentReader::new(file);
        let head = ChainHead { n: self.first.saturating_sub(1), ..ChainHead::EMPTY };
        let mut end = SegmentEnd { head, ..SegmentEnd::default() };
        let (mut length, mut is_signed) = (0_u64, signed.is_none_or(|signed| signed.n < self.first));
        while let Some(LineText { bytes: text, is_whole: true }) = reader.next()? {
            let read = JournalLine::read(text).ok();
            let follows = read.as_ref().is_some_and(|line| {
                let is_next = line.n == end.head.n.saturating_add(1);
                // The first line names the hash of a line in the segment before.
                is_next && (length == 0 || line.prev() == Ok(end.head.hash)) && end.unended.read(line)
            });
            if !follows && is_signed {
                break;
            }
            end.is_changed |= !follows;
            let n = read.map_or(end.head.n.saturating_add(1), |line| line.n);
            end.head = ChainHead::at(n, text);
            length = length.saturating_add(text.len() as u64).saturating_add(1);
            is_signed |= signed == Some(end.head);
        }
        Ok((length > 0).then_some(SegmentScan { end, length, is_signed }))
    }

    /// Keeps what a power cut left after this position, in a file beside the segment, if it is more than one line
    /// without its end.
    fn keep_torn(&self, position: u64) -> Result<(), AuditError> {
        let torn = self.bytes_from(position)?;
        if !torn.contains(&b'\n') && !has_foreign_bytes(&torn) {
            return Ok(());
        }
        let mut file = GrowingFile::open(self.lines.path.with_extension(TORN))?;
        file.append(&torn).map_err(|failed| failed.error)?;
        Ok(file.file.sync_data()?)
    }
}

/// The lines of a segment that hold.
struct SegmentScan {
    end: SegmentEnd,
    /// Their length in bytes.
    length: u64,
    /// False if an entry of this segment was signed that is not there.
    is_signed: bool,
}

/// Returns true if these bytes, which follow the last line that holds, are what a killed process or a power cut leaves:
/// a line without its end, or sectors that never were on the disk. Lines that were changed are not: they are evidence.
pub(super) fn is_torn(bytes: &[u8]) -> bool {
    !bytes.contains(&b'\n') || has_foreign_bytes(bytes)
}

/// Returns true if there are more bytes in it that no line has than changes of a line leave.
fn has_foreign_bytes(bytes: &[u8]) -> bool {
    foreign_bytes(bytes) > CHANGED_BYTES
}

/// Returns the number of bytes that no line has.
fn foreign_bytes(bytes: &[u8]) -> usize {
    let foreign = bytes.utf8_chunks().map(|chunk| {
        let controls = chunk.valid().bytes().filter(|byte| *byte < b' ' && *byte != b'\n').count();
        controls.saturating_add(chunk.invalid().len())
    });
    foreign.fold(0, usize::saturating_add)
}

/// Returns the end of a segment from this position on, if it is what a power cut left: see [`is_torn`].
pub(super) fn is_torn_from(dir: &Path, first: u64, position: u64) -> Result<bool, AuditError> {
    let Some(mut file) = open_regular(&path_of(dir, first, LINES))? else { return Ok(false) };
    file.seek(SeekFrom::Start(position))?;
    // It may be long.
    let (mut reader, mut has_break, mut foreign) = (SegmentReader::new(file), false, 0_usize);
    while let Some(line) = reader.next()? {
        has_break |= line.is_whole;
        foreign = foreign.saturating_add(foreign_bytes(line.bytes));
    }
    Ok(!has_break || foreign > CHANGED_BYTES)
}

/// Reads up to this many bytes of a file from this position on.
pub(super) fn read_part(mut file: &File, position: u64, most: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    file.seek(SeekFrom::Start(position))?;
    file.take(most).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Returns the end of the lines, with two whole lines in it unless the segment is shorter, and its position.
fn tail_of(file: &File, length: u64) -> io::Result<(Vec<u8>, u64)> {
    let mut size = TAIL_BYTES;
    loop {
        let start = length.saturating_sub(size);
        let mut tail = read_part(file, start, length.saturating_sub(start))?;
        let breaks = tail.iter().filter(|byte| **byte == b'\n').count();
        if start == 0 || breaks > 2 {
            // The first line is whole only at the beginning of the file.
            let skipped = match start {
                0 => 0,
                _ => tail.iter().position(|byte| *byte == b'\n').map_or(0, |at| at.saturating_add(1)),
            };
            tail.drain(..skipped);
            return Ok((tail, start));
        }
        size = size.saturating_mul(4);
    }
}

/// Returns the files of the segments that begin before `end` and have entries after `n`, the oldest first.
pub(super) fn files_after(dir: &Path, n: u64, end: u64) -> Result<Vec<PathBuf>, AuditError> {
    let next = n.saturating_add(1);
    if end <= next {
        return Ok(Vec::new());
    }
    let firsts = segments(dir)?;
    let begin = firsts.iter().rposition(|first| *first <= next).unwrap_or(0);
    let firsts = firsts.into_iter().skip(begin).filter(|first| *first < end);
    Ok(firsts.flat_map(|first| [LINES, SEALED].map(|ending| path_of(dir, first, ending))).collect())
}

/// Waits until these files of one directory, and their names, are on the disk. One that is gone, or in whose place
/// something else than a file is, is left out: verification reports it.
pub(super) fn sync_paths(paths: &[PathBuf]) -> Result<(), AuditError> {
    for path in paths {
        // One at a time: a journal may have more files than a process may have open.
        if let Some(file) = open_regular(path)? {
            file.sync_data()?;
        }
    }
    let dir = paths.last().map(|path| private_file::parent(path));
    Ok(dir.map_or(Ok(()), private_file::sync_dir)?)
}

/// Returns the number of the last whole line of a segment; none if there is no such line.
pub(super) fn last_entry(dir: &Path, first: u64) -> Result<Option<u64>, AuditError> {
    let last = last_line(dir, first)?;
    Ok(last.and_then(|line| JournalLine::read(&line).ok().map(|line| line.n)))
}

/// Returns the last whole line of a segment; none if there is no such line.
pub(super) fn last_line(dir: &Path, first: u64) -> Result<Option<Vec<u8>>, AuditError> {
    let Some(file) = open_regular(&path_of(dir, first, LINES))? else { return Ok(None) };
    let length = file.metadata()?.len();
    let (tail, _) = tail_of(&file, length)?;
    let end = tail.iter().rposition(|byte| *byte == b'\n').unwrap_or(0);
    let last = tail.get(..end).unwrap_or_default().rsplit(|byte| *byte == b'\n').next();
    Ok(last.map(<[u8]>::to_owned))
}

/// Returns the newest segment of a journal that has its first line; none if there is no such segment. A process may
/// have been killed before it wrote that of a later one, and a power cut or a full disk may leave a file without any.
pub(super) fn newest_with_line(dir: &Path) -> Result<Option<u64>, AuditError> {
    for first in segments(dir)?.into_iter().rev() {
        if has_first_line(dir, first)? {
            return Ok(Some(first));
        }
    }
    Ok(None)
}

/// Returns true if there is this segment, with its first line.
pub(super) fn has_first_line(dir: &Path, first: u64) -> Result<bool, AuditError> {
    let Some(mut reader) = SegmentReader::open_regular(dir, first)? else { return Ok(false) };
    Ok(reader.next()?.is_some_and(|line| line.is_whole && JournalLine::read(line.bytes).is_ok()))
}

/// Returns the hash of an entry; none if it is not there, or cannot be read.
pub(super) fn hash_of(dir: &Path, n: u64) -> Result<Option<[u8; 32]>, AuditError> {
    if !dir.is_dir() {
        return Ok(None);
    }
    let firsts = segments(dir)?;
    let Some(first) = firsts.iter().copied().rfind(|first| *first <= n) else {
        // The next entry names the hash of one that was pruned.
        let next = firsts.first().copied().filter(|first| n > 0 && *first == n.saturating_add(1));
        return next.map_or(Ok(None), |next| hash_before(dir, next));
    };
    let Some(mut reader) = SegmentReader::open_regular(dir, first)? else { return Ok(None) };
    let mut last = first.saturating_sub(1);
    while let Some(read) = reader.next()?.filter(|read| read.is_whole) {
        // Lines before it may be missing, which the operator may have accepted.
        last = JournalLine::read(read.bytes).map_or(last.saturating_add(1), |line| line.n);
        if last == n {
            return Ok(Some(ChainHead::at(n, read.bytes).hash));
        }
    }
    Ok(None)
}

/// Returns the end of the chain before a segment. Its hash is zero if no line of the segment names one.
pub(super) fn head_before(dir: &Path, first: u64) -> Result<ChainHead, AuditError> {
    Ok(ChainHead { n: first.saturating_sub(1), hash: hash_before(dir, first)?.unwrap_or_default() })
}

/// Returns the hash that the first entry of a segment names.
fn hash_before(dir: &Path, first: u64) -> Result<Option<[u8; 32]>, AuditError> {
    let Some(mut reader) = SegmentReader::open_regular(dir, first)? else { return Ok(None) };
    let Some(line) = reader.next()? else { return Ok(None) };
    Ok(JournalLine::read(line.bytes).and_then(|line| line.prev()).ok())
}

/// Reads a sealed part; none if it was dropped since.
pub(crate) fn read_sealed(
    dir: &Path,
    first: u64,
    offset: u64,
    bytes: u64,
) -> Result<Option<Sealed>, AuditError> {
    let Some(file) = open_sealed(dir, first)? else { return Ok(None) };
    let sealed = read_part(&file, offset, bytes)?;
    let is_there = sealed.len() as u64 == bytes && sealed.iter().any(|byte| *byte != 0);
    Ok(is_there.then(|| Sealed::from_bytes(sealed)))
}

/// Opens the lines of a segment to read them; none if there is no such segment.
pub(crate) fn open_lines(dir: &Path, first: u64) -> Result<Option<File>, AuditError> {
    open_to_read(&path_of(dir, first, LINES)).map_err(of_journal)
}

/// Opens the sealed parts of a segment to read them; none if there are none.
pub(crate) fn open_sealed(dir: &Path, first: u64) -> Result<Option<File>, AuditError> {
    open_to_read(&path_of(dir, first, SEALED)).map_err(of_journal)
}

/// Converts the error of a path at which something else than a file is: no host did that, and what is derived from the
/// journals is not damaged by it.
fn of_journal(error: AuditError) -> AuditError {
    match error.kind() {
        AuditErrorKind::Corrupt => AuditError::new(AuditErrorKind::Tampered, error),
        _ => error,
    }
}

/// Overwrites a sealed part with zeros, which take no space where the file system has holes. Needs no lock: the part of a
/// call that has ended is never written again.
pub(crate) fn drop_sealed(dir: &Path, first: u64, place: &SealedPlace) -> Result<(), AuditError> {
    let path = path_of(dir, first, SEALED);
    let exists =
        private_file::check(&path, &POLICY).map_err(|error| AuditError::from_file(&name_of(&path), error))?;
    if !exists {
        return Ok(());
    }
    let file = OpenOptions::new().read(true).write(true).custom_flags(NOFOLLOW).open(&path)?;
    Ok(zero(&file, place.offset, place.bytes)?)
}

/// Overwrites bytes with zeros. Blocks in which there are only zeros then become holes.
fn zero(file: &File, offset: u64, bytes: u64) -> io::Result<()> {
    // What is appended meanwhile is not touched.
    let length = file.metadata()?.len();
    let (start, end) = (offset.min(length), offset.saturating_add(bytes).min(length));
    let (block, next) = (start / BLOCK * BLOCK, end.next_multiple_of(BLOCK).min(length));
    let from = if is_zero(file, block, start)? { block } else { start };
    let to = if is_zero(file, end, next)? { next } else { end };
    if from == to {
        return Ok(());
    }
    let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    match rustix::fs::fallocate(file, flags, from, to.saturating_sub(from)) {
        Err(Errno::OPNOTSUPP | Errno::NOSYS) => {
            let zeros = [0; BLOCK as usize];
            let mut at = start;
            while at < end {
                let count = usize::try_from(end.saturating_sub(at)).unwrap_or(zeros.len()).min(zeros.len());
                file.write_all_at(zeros.get(..count).unwrap_or_default(), at)?;
                at = at.saturating_add(count as u64);
            }
            Ok(())
        }
        punched => Ok(punched?),
    }
}

/// Returns true if there are only zeros in this part of a block.
fn is_zero(file: &File, from: u64, to: u64) -> io::Result<bool> {
    let mut bytes = vec![0; usize::try_from(to.saturating_sub(from)).unwrap_or(0)];
    file.read_exact_at(&mut bytes, from)?;
    Ok(bytes.iter().all(|byte| *byte == 0))
}

fn open_to_read(path: &Path) -> Result<Option<File>, AuditError> {
    let file =
        private_file::open(path, &POLICY).map_err(|error| AuditError::from_file(&name_of(path), error))?;
    Ok(file.map(private_file::PrivateFile::into_file))
}

/// Opens a file to read; none also if something else than a file is in its place.
fn open_regular(path: &Path) -> Result<Option<File>, AuditError> {
    match open_to_read(path) {
        Err(error) if error.kind() == AuditErrorKind::Corrupt => Ok(None),
        opened => opened,
    }
}

pub(super) fn path_of(dir: &Path, first: u64, ending: &str) -> PathBuf {
    dir.join(format!("{first:012}.{ending}"))
}

/// Returns the numbers of the first entries of the segments in this directory, in order.
pub(crate) fn segments(dir: &Path) -> Result<Vec<u64>, AuditError> {
    let mut firsts = Vec::new();
    for file in fs::read_dir(dir)? {
        let name = file?.file_name();
        let first = name.to_str().and_then(|name| name.strip_suffix(LINES)?.strip_suffix('.')?.parse().ok());
        firsts.extend(first.filter(|first| path_of(dir, *first, LINES).file_name() == Some(&name)));
    }
    firsts.sort_unstable();
    Ok(firsts)
}

/// Reads a segment line by line.
pub(crate) struct SegmentReader<F = File> {
    reader: BufReader<F>,
    line: Vec<u8>,
    /// True once the file ended within a line.
    is_over: bool,
}

/// The text of a line, without its line break.
pub(crate) struct LineText<'r> {
    pub(crate) bytes: &'r [u8],
    /// False if the file ends before the line does.
    pub(crate) is_whole: bool,
}

impl SegmentReader {
    /// Opens the segment; none if there is no such segment.
    pub(super) fn open(dir: &Path, first: u64) -> Result<Option<Self>, AuditError> {
        Ok(open_to_read(&path_of(dir, first, LINES))?.map(Self::new))
    }

    /// Opens the segment; none also if something else than a file is in its place.
    pub(super) fn open_regular(dir: &Path, first: u64) -> Result<Option<Self>, AuditError> {
        Ok(open_regular(&path_of(dir, first, LINES))?.map(Self::new))
    }

    /// Opens the segment at this position, as [`open_lines`] does.
    pub(crate) fn open_at(dir: &Path, first: u64, position: u64) -> Result<Option<Self>, AuditError> {
        let Some(mut file) = open_lines(dir, first)? else { return Ok(None) };
        file.seek(SeekFrom::Start(position))?;
        Ok(Some(Self::new(file)))
    }
}

impl<F: io::Read> SegmentReader<F> {
    fn new(file: F) -> Self {
        let reader = BufReader::with_capacity(64 * 1024, file);
        Self { reader, line: Vec::new(), is_over: false }
    }

    /// Returns the next line; none at the end.
    pub(crate) fn next(&mut self) -> Result<Option<LineText<'_>>, AuditError> {
        self.line.clear();
        if self.is_over {
            return Ok(None);
        }
        let mut limited = (&mut self.reader).take(LINE_BYTES);
        let read = limited.read_until(b'\n', &mut self.line)?;
        if read == 0 {
            return Ok(None);
        }
        let is_whole = self.line.pop_if(|byte| *byte == b'\n').is_some();
        // A host may write the rest of the line later. The rest alone is not a line.
        self.is_over = !is_whole && (read as u64) < LINE_BYTES;
        Ok(Some(LineText { bytes: &self.line, is_whole }))
    }
}

#[cfg(test)]
impl Segment {
    /// Replaces the open file by one that can only be read.
    pub(super) fn break_lines(&mut self) {
        if let Ok(file) = File::open(&self.lines.path) {
            self.lines.file = file;
        }
    }
}
