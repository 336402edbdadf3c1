//! What the checks share: where things stand, and what was wrong so far.

use std::{collections::HashSet, net::SocketAddr, path::Path};

use super::super::{
    document,
    env::Lookup,
    error::{ConfigError, Problem, Spot},
    files::{Use, UsedFile},
    index::Index,
    place::Place,
    raw::{Field, Leaf, Mapping, OneOrMany, Scalar, Shape},
    suggest, units,
};

/// Problems that are told at most: a file with more is none that somebody wrote.
const MAX_PROBLEMS: usize = 1000;

/// Collects problems, each with its position.
pub(in crate::config) struct Context<'a> {
    index: &'a Index,
    /// The folder of the file.
    folder: &'a Path,
    lookup: Lookup<'a>,
    files: Vec<UsedFile>,
    /// What is wrong in these.
    elsewhere: Vec<ConfigError>,
    problems: Vec<Problem>,
    warnings: Vec<Problem>,
    /// Paths of values that are not to be judged.
    unjudged: HashSet<String>,
    /// Keys that were probably meant by misspelled ones: they are not missing as well.
    guessed: HashSet<String>,
}

impl<'a> Context<'a> {
    /// Nothing is wrong yet, but `problems`; what stands at the paths `unjudged` was told of already. Names of files are
    /// relative to `folder`; variables in them are taken from `lookup`.
    pub(in crate::config) fn new(
        index: &'a Index,
        folder: &'a Path,
        lookup: Lookup<'a>,
        problems: Vec<Problem>,
        unjudged: HashSet<String>,
    ) -> Self {
        Self {
            index,
            folder,
            lookup,
            files: Vec::new(),
            elsewhere: Vec::new(),
            problems,
            warnings: Vec::new(),
            unjudged,
            guessed: HashSet::new(),
        }
    }

    pub(super) fn is_clean(&self) -> bool {
        self.problems.is_empty() && self.elsewhere.is_empty()
    }

    /// The whole document has the wrong shape.
    pub(in crate::config) fn whole<T: Shape>(&mut self, document: &Field<T>) {
        self.shape(&Place::Root, document);
    }

    /// What is wrong with `file`, whose content is `text`, and with the files that it names.
    pub(in crate::config) fn into_error(self, file: &str, text: &str) -> ConfigError {
        ConfigError::new(file, text, self.problems).with(self.elsewhere, self.files)
    }

    fn push(&mut self, spot: Spot, place: &Place<'_>, message: String) {
        let path = place.to_string();
        if self.problems.len() < MAX_PROBLEMS && !self.unjudged.contains(&path) {
            let spot = Some(spot);
            self.problems.push(Problem { spot, path, message });
        }
    }

    /// The value at `place` is hardly what was meant.
    pub(in crate::config) fn warn(&mut self, place: &Place<'_>, message: impl Into<String>) {
        if self.warnings.len() < MAX_PROBLEMS {
            self.warnings.push(Problem {
                spot: Some(self.index.value(place)),
                path: place.to_string(),
                message: message.into(),
            });
        }
    }

    /// The warnings, in the order of the file.
    pub(super) fn take_warnings(&mut self) -> Vec<Problem> {
        let mut warnings = std::mem::take(&mut self.warnings);
        warnings.sort_by_key(|warning| warning.spot);
        warnings
    }

    /// The files that were read.
    pub(super) fn take_files(&mut self) -> Vec<UsedFile> {
        std::mem::take(&mut self.files)
    }

    /// The certificate or key that is named at `place`, read; tells where it cannot be.
    pub(super) fn file<T: Leaf>(&mut self, place: &Place<'_>, field: &Field<T>) -> Option<UsedFile> {
        self.used_file(place, field, Use::Certificate)
    }

    /// As [`Self::file`], of a file that is a part of the configuration, and watched as that is.
    pub(super) fn part<T: Leaf>(&mut self, place: &Place<'_>, field: &Field<T>) -> Option<UsedFile> {
        self.used_file(place, field, Use::Part)
    }

    fn used_file<T: Leaf>(&mut self, place: &Place<'_>, field: &Field<T>, used: Use) -> Option<UsedFile> {
        let name = self.read(place, field, |scalar| match units::text(scalar)? {
            "" => Err("is empty, expected the path of a file".to_owned()),
            name => Ok(name),
        })?;
        let (file, error) = UsedFile::read(self.folder, name, used);
        // One that is not there may come: it is watched too.
        self.files.push(file.clone());
        if let Some(error) = error {
            self.wrong(place, error);
            return None;
        }
        Some(file)
    }

    /// Gives the document in the file that is named at `place` to `check`, with a context of its own: what is wrong in
    /// there is told with that file's name.
    pub(super) fn document<T: Leaf, D: Shape>(
        &mut self,
        place: &Place<'_>,
        field: &Field<T>,
        check: impl FnOnce(&D, &mut Context<'_>),
    ) {
        let Some(file) = self.used_file(place, field, Use::Part) else {
            return;
        };
        let name = file.path().display().to_string();
        let Ok(text) = std::str::from_utf8(file.content()) else {
            return self.wrong(place, format!("`{name}` is not UTF-8"));
        };
        let mut problems = Vec::new();
        let error = match document::read(text, &D::expected(), self.lookup, &mut problems) {
            Ok(document) => {
                let mut cx = Context::new(&document.index, self.folder, self.lookup, problems, document.unreplaced);
                match Field::<D>::read(document.value) {
                    Field::Is(value) => check(&value, &mut cx),
                    wrong => cx.whole(&wrong),
                }
                if cx.is_clean() {
                    return;
                }
                cx.into_error(&name, text)
            }
            Err(problem) => {
                problems.push(problem);
                ConfigError::new(name, text, problems)
            }
        };
        self.elsewhere.push(error);
    }

    /// How many problems were told.
    pub(super) fn told(&self) -> usize {
        self.problems.len()
    }

    /// The value at `place` is wrong.
    pub(super) fn wrong(&mut self, place: &Place<'_>, message: impl Into<String>) {
        self.push(self.index.value(place), place, message.into());
    }

    /// The key at `place` should not be there.
    pub(super) fn wrong_key(&mut self, place: &Place<'_>, message: impl Into<String>) {
        self.push(self.index.item(place), place, message.into());
    }

    /// `key` is missing from the item at `item`, unless it stands there misspelled.
    pub(super) fn missing(&mut self, item: &Place<'_>, key: &str, expected: &str) {
        if !self.is_guessed(item, key) {
            let message = format!("is missing, expected {expected}");
            self.push(self.index.item(item), &item.key(key), message);
        }
    }

    /// As [`Self::missing`], where one of two keys must be there.
    pub(super) fn missing_both(&mut self, item: &Place<'_>, [key, other]: [&str; 2]) {
        if !self.is_guessed(item, other) {
            self.missing(item, key, &suggest::list(&[key, other]));
        }
    }

    fn is_guessed(&self, item: &Place<'_>, key: &str) -> bool {
        self.guessed.contains(&item.key(key).to_string())
    }

    /// `what`, a value of the contract, is one that this version does not know how to serve.
    pub(super) fn unsupported(&mut self, place: &Place<'_>, what: &str, expected: &str) {
        self.wrong(
            place,
            format!("`{what}` is not supported by this version yet, expected {expected}"),
        );
    }

    /// Tells of every key of `raw`, at `item`, that is unknown, or known by name only.
    pub(super) fn unknown_keys<T: Mapping>(&mut self, item: &Place<'_>, raw: &T) {
        for key in raw.other() {
            let place = item.key(key);
            if T::later().contains(&key.as_str()) {
                self.wrong_key(&place, format!("`{key}` is not supported by this version yet"));
                continue;
            }
            let known = T::keys();
            let all = known.iter().chain(T::later()).copied();
            let message = match suggest::nearest(key, all) {
                Some(meant) => {
                    self.guessed.insert(item.key(meant).to_string());
                    format!("unknown key, did you mean `{meant}`?")
                }
                None => format!("unknown key, expected {}", suggest::list(&known)),
            };
            self.wrong_key(&place, message);
        }
    }

    /// The value of `field`; tells where it has the wrong shape.
    pub(super) fn shape<'f, T: Shape>(&mut self, place: &Place<'_>, field: &'f Field<T>) -> Option<&'f T> {
        if let Field::Wrong { found, expected } = field {
            self.wrong(place, format!("{found}, expected {expected}"));
        }
        field.value()
    }

    /// As [`Self::shape`], of a mapping, whose unknown keys are told too.
    pub(super) fn mapping<'f, T: Mapping>(&mut self, place: &Place<'_>, field: &'f Field<T>) -> Option<&'f T> {
        let raw = self.shape(place, field)?;
        self.unknown_keys(place, raw);
        Some(raw)
    }

    /// What `read` makes of the value of `field`; tells where it makes nothing. `None` also where the key is absent.
    pub(super) fn read<'f, T: Leaf, R>(
        &mut self,
        place: &Place<'_>,
        field: &'f Field<T>,
        read: impl FnOnce(&'f Scalar) -> Result<R, String>,
    ) -> Option<R> {
        let leaf = self.shape(place, field)?;
        self.scalar(place, leaf, read)
    }

    /// As [`Self::read`], of a leaf.
    pub(super) fn scalar<'f, T: Leaf, R>(
        &mut self,
        place: &Place<'_>,
        leaf: &'f T,
        read: impl FnOnce(&'f Scalar) -> Result<R, String>,
    ) -> Option<R> {
        read(leaf.scalar()).map_err(|message| self.wrong(place, message)).ok()
    }

    /// As [`Self::read`], where the key must be there.
    pub(super) fn required<'f, T: Leaf, R>(
        &mut self,
        item: &Place<'_>,
        key: &str,
        field: &'f Field<T>,
        read: impl FnOnce(&'f Scalar) -> Result<R, String>,
    ) -> Option<R> {
        if !field.is_present() {
            self.missing(item, key, &T::expected());
        }
        self.read(&item.key(key), field, read)
    }

    /// One of the words of `choices`.
    pub(super) fn word<T: Leaf, R: Copy>(
        &mut self,
        place: &Place<'_>,
        field: &Field<T>,
        choices: &[(&str, R)],
    ) -> Option<R> {
        self.read(place, field, |scalar| one_of(scalar, choices))
    }

    /// A word of which only the first is supported; the others are known by name.
    pub(super) fn only<T: Leaf>(&mut self, place: &Place<'_>, field: &Field<T>, supported: &str, later: &[&str]) {
        let choices: Vec<_> = std::iter::once(supported)
            .chain(later.iter().copied())
            .map(|word| (word, word))
            .collect();
        if let Some(word) = self.word(place, field, &choices)
            && word != supported
        {
            self.unsupported(place, word, &format!("`{supported}`"));
        }
    }

    /// The items of a list, each with its place, at least one.
    pub(super) fn each<'f, T: Shape>(
        &mut self,
        place: &Place<'_>,
        list: &'f OneOrMany<T>,
        mut f: impl FnMut(&mut Self, &Place<'_>, &'f Field<T>),
    ) {
        for (i, field) in list.items.iter().enumerate() {
            f(self, &place.item(i, list.is_list), field);
        }
    }

    /// What `read` makes of each item of the list of `field`, which says `expected` where it is empty; nothing where the
    /// key is absent.
    pub(super) fn read_each<'f, T: Leaf, R>(
        &mut self,
        place: &Place<'_>,
        field: &'f Field<OneOrMany<T>>,
        expected: &str,
        read: fn(&'f Scalar) -> Result<R, String>,
    ) -> Vec<R> {
        let mut values = Vec::new();
        if let Some(list) = self.shape(place, field) {
            self.not_empty(place, list, expected);
            self.each(place, list, |cx, place, field| {
                values.extend(cx.read(place, field, read))
            });
        }
        values
    }

    /// Tells of a list without items.
    pub(super) fn not_empty<T: Shape>(&mut self, place: &Place<'_>, list: &OneOrMany<T>, expected: &str) {
        if list.items.is_empty() {
            self.wrong(place, format!("is empty, expected {expected}"));
        }
    }
}

/// The choice that `scalar` names.
pub(super) fn one_of<R: Copy>(scalar: &Scalar, choices: &[(&str, R)]) -> Result<R, String> {
    let word = scalar.to_string();
    match choices.iter().find(|(name, _)| *name == word) {
        Some((_, choice)) => Ok(*choice),
        None => {
            let names: Vec<_> = choices.iter().map(|(name, _)| *name).collect();
            Err(format!("`{word}` is not known here{}", suggest::hint(&word, &names)))
        }
    }
}

/// A name: `[A-Za-z0-9_.-]{1,64}`.
pub(super) fn name(scalar: &Scalar) -> Result<&str, String> {
    let name = units::text(scalar)?;
    check_name(name)?;
    Ok(name)
}

/// As [`name`], of a text.
pub(super) fn check_name(name: &str) -> Result<(), String> {
    let is_name = (1..=64).contains(&name.len())
        && name
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'.' | b'-'));
    if is_name {
        return Ok(());
    }
    let shown: String = name.chars().take(80).collect();
    Err(format!(
        "`{shown}` is not a name, expected 1 to 64 letters, digits, `_`, `.` or `-`"
    ))
}

/// A whole number within bounds.
pub(super) fn within(min: u64, max: u64) -> impl Fn(&Scalar) -> Result<u64, String> {
    move |scalar| match units::whole(scalar)? {
        value if (min..=max).contains(&value) => Ok(value),
        value => Err(format!("{value} is out of range, expected {min} to {max}")),
    }
}

/// IP address and port.
pub(super) fn address(scalar: &Scalar) -> Result<SocketAddr, String> {
    let text = scalar.to_string();
    text.parse().map_err(|_| {
        let example = match text.rsplit_once(':') {
            Some(("localhost", port)) => format!("127.0.0.1:{port}"),
            Some(("" | "*", port)) => format!("0.0.0.0:{port}"),
            None if text.parse::<u16>().is_ok() => format!("127.0.0.1:{text}"),
            _ => "127.0.0.1:8080".to_owned(),
        };
        format!("`{text}` is not an address, expected IP:PORT such as `{example}`")
    })
}
