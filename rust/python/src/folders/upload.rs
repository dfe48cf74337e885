//! The class `FolderUpload`: a folder that is added to a gateway, in memory that hardly grows with its files.

use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use core::{Cid, Suite};
use coregw_core as core;
use coregw_folders::changes::{self, Changes};
use coregw_folders::hashed::{Hashed, Recorded, Totals};
use coregw_folders::parallel::locked;
use coregw_folders::reading::Reading;
use coregw_folders::stat_file::{self, Header, StatFile};
use coregw_folders::upload::{BATCH_PAYLOADS, Draft, LinesOf, MapLines};
use coregw_ops::car;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::sync::MutexExt as _;
use pyo3::types::{PyBytes, PyDict, PyString};

use crate::cid::{CidLike, text};
use crate::convert::{BytesLike, chunk_size};
use crate::detach::{self, Work};
use crate::errors::call;

use super::hashed::{RootsTuple, roots_by};
use super::survey::{Survey, pairs};

/// The file of a stat cache, the folder's absolute path, other options, and the time in nanoseconds for which a file
/// must not have changed when it is read, by the next time.
type CacheLike = (PathBuf, PathBuf, String, i64);

/// A folder that is added to a gateway: its files are read and hashed once, and kept until they are sent.
///
/// Its own threads read the files, and wait while too much is kept. The memory is some 35 bytes for each entry
/// besides the survey, and at most two batches of 4 MiB besides those that the caller has. Each of `start`,
/// `start_again` and `start_records` is followed by `next_batch` until `is_read`. A file that changes while it is read
/// is read again, at most three times. If the bytes that it had at first are the same again, it has only grown, and
/// these bytes are its content; otherwise it is skipped and reported.
///
/// Args:
///     found: What the folder has.
///     suite: The hash function of lists and maps: ``sha2-256`` or ``blake3``.
///     xattrs: Whether extended attributes are read as well.
///     cache: What is known of the folder since it was added last: the file, the folder's path, whatever else the
///         targets depend on, and the nanoseconds for which a file has to be unchanged when it is read, so that its
///         times say whether it has changed since. A file that is missing, damaged, or of another folder is ignored.
///
/// Raises:
///     InvalidInput: If `suite` is neither of these.
///
/// >>> import pathlib, tempfile
/// >>> with tempfile.TemporaryDirectory() as folder:
/// ...     _ = pathlib.Path(folder, "a").write_bytes(b"hello")
/// ...     upload = FolderUpload(survey(folder))
/// ...     upload.start()
/// ...     while not upload.is_read:
/// ...         _ = upload.next_batch(1)
/// >>> upload.arcs() == {"a": payload_cid(b"hello")}
/// True
#[pyclass(frozen, module = "coregw._core")]
pub struct FolderUpload {
    reading: Arc<Reading>,
    cache: Option<Arc<StatFile>>,
    header: Header,
    /// The files that were asked about last, and the place of the next ones.
    question: Mutex<(Vec<usize>, usize)>,
    /// The entries whose records have changed, if these are known.
    changed: Mutex<Option<Vec<usize>>>,
}

/// A path, and its targets before and after.
type ChangeTuple<'py> = (String, Option<Bound<'py, PyString>>, Option<Bound<'py, PyString>>);

impl Drop for FolderUpload {
    fn drop(&mut self) {
        self.reading.stop();
    }
}

#[pymethods]
impl FolderUpload {
    #[new]
    #[pyo3(signature = (found, suite = "sha2-256", xattrs = false, cache = None),
           text_signature = "(found, suite='sha2-256', xattrs=False, cache=None)")]
    fn new(
        py: Python<'_>,
        found: &Bound<'_, Survey>,
        suite: &str,
        xattrs: bool,
        cache: Option<CacheLike>,
    ) -> PyResult<Self> {
        let suite = call(|| Suite::from_name(suite))?;
        let found = Arc::clone(&found.get().0);
        detach::run(py, Work::Unbounded, || {
            let reading = Reading::new(Hashed::new(found, suite), xattrs);
            let began = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_nanos() as i64);
            let (mut header, mut known) = (Header::default(), None);
            if let Some((file, folder, options, racy)) = cache {
                header.before = began.saturating_sub(racy);
                header.folder = folder.as_os_str().as_bytes().to_vec();
                header.options = options.into_bytes();
                let opened = StatFile::open(&file, &header.folder, &header.options);
                known = opened.filter(|known| reading.remember(known)).map(Arc::new);
            }
            Ok(Self {
                reading: Arc::new(reading),
                cache: known,
                header,
                question: Mutex::default(),
                changed: Mutex::default(),
            })
        })
    }

    /// Return the root of a folder when it was added last, as a cache says that may be damaged; None if it does not.
    ///
    /// O(1), where `cached_root` comes after the survey.
    ///
    /// Args:
    ///     file: The file of the cache.
    ///     folder: The folder's path.
    ///     options: Whatever else the targets depend on.
    #[staticmethod]
    fn probable_root(py: Python<'_>, file: PathBuf, folder: PathBuf, options: &str) -> PyResult<Option<String>> {
        let folder = folder.as_os_str().as_bytes();
        let work = || Ok(StatFile::open_unchecked(&file, folder, options.as_bytes()));
        let opened = detach::run(py, Work::Unbounded, work)?;
        Ok(opened.and_then(|opened| root_text(&opened.header.root)))
    }

    /// The root of the folder when it was added last, as text; None if that is not known.
    #[getter]
    fn cached_root(&self) -> Option<String> {
        root_text(&self.cache.as_ref()?.header.root)
    }

    /// The root of its map of attributes then; None if it had none.
    #[getter]
    fn cached_attributes(&self) -> Option<String> {
        root_text(&self.cache.as_ref()?.header.attributes)
    }

    /// Start to read and hash the files that the cache does not know.
    fn start(&self) -> PyResult<()> {
        call(|| Reading::start(&self.reading, true))
    }

    /// Start to read the files again whose payloads are missing.
    fn start_again(&self) -> PyResult<()> {
        *locked(&self.changed) = None;
        call(|| Reading::start(&self.reading, false))
    }

    /// Start to collect the records of attributes that are payloads.
    ///
    /// Args:
    ///     attributes: As for `roots`.
    ///     owner: As for `roots`.
    ///     has_base: Whether the gateway holds all records of the last time.
    ///
    /// Raises:
    ///     InvalidInput: If `attributes` is unknown.
    fn start_records(&self, attributes: &str, owner: bool, has_base: bool) -> PyResult<()> {
        let recorded = call(|| Recorded::new(attributes, owner))?;
        let base = self.cache.clone().filter(|_| has_base);
        let changed = base.as_ref().and_then(|_| locked(&self.changed).clone());
        call(|| Reading::start_records(&self.reading, recorded, base, changed))
    }

    /// Let all threads end soon. What was read remains.
    fn stop(&self) {
        self.reading.stop();
    }

    /// Return the next batch of payloads that is full; None if there is none yet, or no more.
    ///
    /// Args:
    ///     seconds: How long to wait.
    ///
    /// Raises:
    ///     InvalidInput: If an entry's attributes take more than 1 MiB.
    fn next_batch(&self, py: Python<'_>, seconds: f64) -> PyResult<Option<PayloadBatch>> {
        let patience =
            Duration::try_from_secs_f64(seconds).map_err(|error| PyValueError::new_err(error.to_string()))?;
        let next = detach::run(py, Work::Unbounded, || self.reading.next(patience))?;
        Ok(next.map(|(number, draft)| PayloadBatch::new(number, draft)))
    }

    /// Whether all was read that was to be read, and all full batches were taken.
    #[getter]
    fn is_read(&self) -> bool {
        self.reading.is_at_end()
    }

    /// Let `next_batch` return the last batch, though it is not full. Nothing is being read meanwhile.
    fn flush(&self) {
        self.reading.flush();
    }

    /// Note that the gateway holds the payloads of a batch.
    fn acknowledge(&self, py: Python<'_>, batch: &PayloadBatch) {
        self.reading.acknowledge(batch.number, &batch.digests(py));
    }

    /// The number of bytes that were read, or need not be read, since it was asked for last.
    fn take_progress(&self) -> u64 {
        self.reading.take_progress()
    }

    /// The number of files that were read, those that were read again counted again.
    #[getter]
    fn files_read(&self) -> u64 {
        self.reading.files_read()
    }

    /// Return a CAR with the trees of up to 500 lists all of whose chunks are acknowledged, and their number.
    ///
    /// Args:
    ///     all: False while files are read: then there are none unless many wait. True when all batches are
    ///         acknowledged.
    fn lists_car<'py>(&self, py: Python<'py>, all: bool) -> PyResult<(Bound<'py, PyBytes>, usize)> {
        let (car, count) = detach::run(py, Work::Unbounded, || {
            let lists = self.reading.take_lists(all)?;
            Ok((if lists.is_empty() { Vec::new() } else { car::lists_car(&lists)? }, lists.len()))
        })?;
        Ok((PyBytes::new(py, &car), count))
    }

    /// Return the CIDs of the next payloads that were not read, because the cache knows them; None at the end.
    ///
    /// Returns:
    ///     Up to 16,384 binary CIDs, one after the other. `answer` follows.
    fn next_question<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyBytes>>> {
        let cids = detach::run(py, Work::Unbounded, || {
            let mut question = locked(&self.question);
            let (cids, places, next) = self.reading.doubtful(question.1, BATCH_PAYLOADS);
            *question = (places, next);
            Ok(cids)
        })?;
        Ok((!cids.is_empty()).then(|| PyBytes::new(py, &cids)))
    }

    /// Note which payloads of the last question are held; the files of the others are read by `start_again`.
    ///
    /// Args:
    ///     held: A bit for each, the lowest one of a byte first.
    ///
    /// Raises:
    ///     ValueError: If there is not one bit for each.
    fn answer(&self, py: Python<'_>, held: BytesLike) -> PyResult<()> {
        let is_complete = detach::run(py, Work::Unbounded, || {
            let question = locked(&self.question);
            if held.len() != question.0.len().div_ceil(8) {
                return Ok(false);
            }
            let missing = question.0.iter().enumerate().filter(|(at, _)| held[at / 8] & (1 << (at % 8)) == 0);
            self.reading.forget(missing.map(|(_, &index)| index));
            Ok(true)
        })?;
        match is_complete {
            true => Ok(()),
            false => Err(PyValueError::new_err("there is not one bit for each payload")),
        }
    }

    /// Return the root of the folder's map, and that of the map of attributes, as `HashedFolder.roots` does.
    ///
    /// Args:
    ///     attributes: What is recorded: ``whole``, ``all``, ``no-times``, ``exec`` or ``none``.
    ///     owner: Whether the numeric ids of owner and group are recorded; not with ``exec`` and ``none``.
    ///
    /// Raises:
    ///     InvalidInput: If `attributes` is unknown, or an entry's extended attributes take more than 1 MiB.
    #[pyo3(signature = (attributes = "all", owner = false), text_signature = "($self, attributes='all', owner=False)")]
    fn roots<'py>(&self, py: Python<'py>, attributes: &str, owner: bool) -> PyResult<RootsTuple<'py>> {
        roots_by(py, attributes, owner, |recorded, signals| self.reading.hashed().roots(recorded, signals))
    }

    /// Return what has changed since the folder was added last: paths with the targets before and after. O(entries).
    ///
    /// Args:
    ///     attributes: As for `roots`.
    ///     owner: As for `roots`.
    ///     most: The limit on the number of changes.
    ///
    /// Returns:
    ///     The changes of the folder's map, without the one of the reserved path, and of the map of attributes; None if
    ///     there are more than `most`, or nothing is known of the last time.
    ///
    /// Raises:
    ///     InvalidInput: If `attributes` is unknown.
    #[allow(clippy::type_complexity)] // two lists of the same kind
    fn changes<'py>(
        &self,
        py: Python<'py>,
        attributes: &str,
        owner: bool,
        most: usize,
    ) -> PyResult<Option<(Vec<ChangeTuple<'py>>, Vec<ChangeTuple<'py>>)>> {
        let recorded = call(|| Recorded::new(attributes, owner))?;
        let Some(cache) = &self.cache else { return Ok(None) };
        let found = detach::run(py, Work::Unbounded, || {
            // A cache that cannot be read any more is no reason to fail.
            Ok(changes::changes(&self.reading.hashed(), cache, recorded, most).ok().flatten())
        })?;
        let tuple = |(path, before, after): changes::Change| {
            (path, before.map(|target| text(py, &target)), after.map(|target| text(py, &target)))
        };
        Ok(found.map(|Changes { files, records, changed }| {
            *locked(&self.changed) = Some(changed);
            (files.into_iter().map(tuple).collect(), records.into_iter().map(tuple).collect())
        }))
    }

    /// Iterate over the arcs of the folder's map: chunks of lines ``["path","CID"]`` of about `size` bytes.
    ///
    /// Args:
    ///     attributes_root: The root of the map of attributes, which has the reserved path.
    ///     size: Bytes of a chunk, at most 1 GiB.
    ///
    /// Raises:
    ///     InvalidInput: If `size` is out of range.
    fn file_lines(&self, attributes_root: Option<CidLike>, size: usize) -> PyResult<FolderLines> {
        self.lines(LinesOf::Files(attributes_root.map(|root| root.0)), size)
    }

    /// Iterate over the arcs of the map of attributes, as `file_lines` does.
    ///
    /// Args:
    ///     attributes: As for `roots`.
    ///     owner: As for `roots`.
    ///     size: As for `file_lines`.
    ///
    /// Raises:
    ///     InvalidInput: If `attributes` is unknown, or `size` is out of range.
    fn record_lines(&self, attributes: &str, owner: bool, size: usize) -> PyResult<FolderLines> {
        self.lines(LinesOf::Records(call(|| Recorded::new(attributes, owner))?), size)
    }

    /// Write the cache for the next time to a file. O(entries).
    ///
    /// Args:
    ///     file: The file, which is replaced.
    ///     roots: What `roots` has returned.
    ///     attributes: As for `roots`.
    ///     owner: As for `roots`.
    ///
    /// Raises:
    ///     InvalidInput: If `attributes` is unknown.
    ///     OSError: If the file cannot be written.
    fn save(
        &self,
        py: Python<'_>,
        file: PathBuf,
        roots: (String, Option<String>),
        attributes: &str,
        owner: bool,
    ) -> PyResult<()> {
        let recorded = call(|| Recorded::new(attributes, owner))?;
        let mut header = self.header.clone();
        (header.root, header.attributes) = (roots.0.into_bytes(), roots.1.unwrap_or_default().into_bytes());
        Ok(detach::run(py, Work::Unbounded, || {
            Ok(stat_file::write(&file, &header, &self.reading.hashed(), recorded))
        })??)
    }

    /// The target of each file's path. O(files), also in memory.
    fn arcs<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let arcs = PyDict::new(py);
        let hashed = detach::run(py, Work::Unbounded, || Ok(self.reading.hashed()))?;
        for index in 0..hashed.survey.entries.count() {
            if let Some(target) = hashed.targets.get(index) {
                arcs.set_item(hashed.survey.entries.path(index).to_string_lossy(), text(py, &target))?;
            }
        }
        Ok(arcs)
    }

    /// The number of files that have targets, how many of them are lists, and the sum of their sizes. O(entries).
    fn totals(&self, py: Python<'_>) -> PyResult<(u64, u64, u64)> {
        let Totals { files, lists, bytes } = detach::run(py, Work::Unbounded, || Ok(self.reading.hashed().totals()))?;
        Ok((files, lists, bytes))
    }

    /// What was skipped, by the survey or since: pairs of location and reason, in the order of locations.
    #[getter]
    fn skipped(&self, py: Python<'_>) -> PyResult<Vec<(PathBuf, String)>> {
        let skips = detach::run(py, Work::Unbounded, || Ok(self.reading.hashed().all_skips()))?;
        Ok(pairs(&skips))
    }

    /// What could not be recorded of the folder itself, as `skipped`, where that has a record.
    #[getter]
    fn top_skipped(&self, py: Python<'_>) -> PyResult<Vec<(PathBuf, String)>> {
        let skips = detach::run(py, Work::Unbounded, || Ok(self.reading.hashed().top_skips().to_vec()))?;
        Ok(pairs(&skips))
    }
}

impl FolderUpload {
    fn lines(&self, which: LinesOf, size: usize) -> PyResult<FolderLines> {
        Ok(FolderLines { reading: Arc::clone(&self.reading), lines: MapLines::new(which, chunk_size(size)?) })
    }
}

/// A root that a stat file names, as text.
fn root_text(named: &[u8]) -> Option<String> {
    let cid = Cid::from_text(std::str::from_utf8(named).ok()?).ok()?;
    Some(cid.text())
}

/// Iterates over the arcs of a folder's map in chunks of lines.
#[pyclass(module = "coregw._core")]
pub struct FolderLines {
    reading: Arc<Reading>,
    lines: MapLines,
}

#[pymethods]
impl FolderLines {
    fn __iter__(slf: PyRef<'_, Self>) -> PyRef<'_, Self> {
        slf
    }

    fn __next__<'py>(&mut self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyBytes>>> {
        let chunk = detach::run(py, Work::Unbounded, || self.lines.next(&self.reading.hashed()))?;
        Ok((!chunk.is_empty()).then(|| PyBytes::new(py, &chunk)))
    }
}

/// Payloads that were read, some of which a gateway may hold. Made by `FolderUpload.next_batch`.
#[pyclass(frozen, module = "coregw._core")]
pub struct PayloadBatch {
    number: u64,
    payloads: usize,
    draft: Mutex<Draft>,
}

impl PayloadBatch {
    fn new(number: u64, draft: Draft) -> Self {
        Self { number, payloads: draft.len(), draft: Mutex::new(draft) }
    }

    /// The digests of its payloads.
    fn digests(&self, py: Python<'_>) -> Vec<[u8; 32]> {
        self.draft(py).digests().collect()
    }

    /// What is collected, with the GIL held: it is released while another thread has the lock.
    fn draft(&self, py: Python<'_>) -> MutexGuard<'_, Draft> {
        self.draft.lock_py_attached(py).unwrap_or_else(PoisonError::into_inner)
    }
}

#[pymethods]
impl PayloadBatch {
    /// The number of payloads, at most 16,384.
    fn __len__(&self) -> usize {
        self.payloads
    }

    /// The binary CIDs of the payloads, one after the other.
    #[getter]
    fn cids<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, self.draft(py).cids())
    }

    /// Return a CAR of the payloads that are not held, and free the memory of all. O(bytes).
    ///
    /// Args:
    ///     held: A bit for each payload, the lowest one of a byte first: whether it is held.
    ///
    /// Returns:
    ///     The CAR; the number of payloads in it, and the sum of their lengths. An empty CAR if all are held.
    ///
    /// Raises:
    ///     ValueError: If `held` does not have one bit for each payload.
    fn car<'py>(&self, py: Python<'py>, held: BytesLike) -> PyResult<(Bound<'py, PyBytes>, usize, u64)> {
        if held.len() != self.payloads.div_ceil(8) {
            return Err(PyValueError::new_err("there is not one bit for each payload"));
        }
        let mut draft = self.draft(py);
        let is_held = |index: usize| held[index / 8] & (1 << (index % 8)) != 0;
        let missing = || draft.frames().enumerate().filter(|(index, _)| !is_held(*index)).map(|(_, frame)| frame);
        let (count, size) = missing().fold((0, 0), |(count, size), frame| (count + 1, size + frame.len()));
        let bytes = missing().map(Draft::payload_len).sum();
        let header = if count > 0 { car::payload_car_header() } else { &[] };
        let car = PyBytes::new_with(py, header.len() + size, |out| {
            let (first, mut rest) = out.split_at_mut(header.len());
            first.copy_from_slice(header);
            for frame in missing() {
                let (place, others) = rest.split_at_mut(frame.len());
                place.copy_from_slice(frame);
                rest = others;
            }
            Ok(())
        })?;
        draft.free_frames();
        Ok((car, count, bytes))
    }
}
