//! Archives that the Linux kernel unpacks into its first file system: cpio, format "newc".
//!
//! Contract: the same entries give the same bytes; nothing of the host (owner, time, inode) is in them.
//! Source: the kernel's own description, Documentation/driver-api/early-userspace/buffer-format.rst.

const FOLDER: u32 = 0o040_755;
const PROGRAM: u32 = 0o100_755;
const LINK: u32 = 0o120_777;
const TRAILER: &str = "TRAILER!!!";

/// An archive that grows.
#[derive(Default)]
pub struct Archive {
    bytes: Vec<u8>,
    entries: u32,
    folders: Vec<String>,
}

impl Archive {
    fn entry(&mut self, name: &str, mode: u32, content: &[u8]) {
        self.entries += 1;
        let links = if mode == FOLDER { 2 } else { 1 };
        let size = u32::try_from(content.len()).expect("files of an archive are below 4 GiB");
        // Inode, mode, user, group, links, time, size, two devices of two numbers, length of the name,
        // checksum.
        let fields = [self.entries, mode, 0, 0, links, 0, size, 0, 0, 0, 0, name.len() as u32 + 1, 0]
            .map(|field| format!("{field:08x}"));
        self.bytes.extend(format!("070701{}{name}\0", fields.concat()).bytes());
        self.align();
        self.bytes.extend(content);
        self.align();
    }

    fn align(&mut self) {
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }

    /// A folder and all those above it, once each. Paths have no leading slash.
    pub fn folder(&mut self, path: &str) {
        for (end, _) in path.match_indices('/').chain([(path.len(), "")]) {
            let folder = &path[..end];
            if !folder.is_empty() && !self.folders.iter().any(|known| known == folder) {
                self.folders.push(folder.to_owned());
                self.entry(folder, FOLDER, &[]);
            }
        }
    }

    fn parents(&mut self, path: &str) {
        if let Some((above, _)) = path.rsplit_once('/') {
            self.folder(above);
        }
    }

    /// A file that may be executed.
    pub fn file(&mut self, path: &str, content: &[u8]) {
        self.parents(path);
        self.entry(path, PROGRAM, content);
    }

    /// A symbolic link.
    pub fn link(&mut self, path: &str, target: &str) {
        self.parents(path);
        self.entry(path, LINK, target.as_bytes());
    }

    #[must_use]
    pub fn finish(mut self) -> Vec<u8> {
        self.entry(TRAILER, 0, &[]);
        self.bytes
    }
}

/// The entries of an archive as [`Archive`] writes it, up to where it ends or makes no sense: path and
/// content.
pub fn entries(archive: &[u8]) -> impl Iterator<Item = (&str, &[u8])> {
    const HEADER: usize = 110;
    let mut at = 0;
    std::iter::from_fn(move || {
        let field = |index: usize| {
            let text = archive.get(at + 6 + 8 * index..)?.get(..8)?;
            usize::from_str_radix(std::str::from_utf8(text).ok()?, 16).ok()
        };
        let (size, name_bytes) = (field(6)?, field(11)?);
        let name = archive.get(at + HEADER..)?.get(..name_bytes.checked_sub(1)?)?;
        let name = std::str::from_utf8(name).ok().filter(|name| *name != TRAILER)?;
        let content = (at + HEADER + name_bytes).next_multiple_of(4);
        at = (content + size).next_multiple_of(4);
        Some((name, archive.get(content..content + size)?))
    })
}

/// The content of a file in an archive.
#[must_use]
pub fn file<'a>(archive: &'a [u8], path: &str) -> Option<&'a [u8]> {
    entries(archive).find(|(name, _)| *name == path).map(|(_, content)| content)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_aligned_and_folders_come_first() {
        let mut archive = Archive::default();
        archive.file("a/b/c", b"hello");
        archive.link("a/d", "b/c");
        let bytes = archive.finish();
        assert_eq!(bytes.len() % 4, 0);
        let found: Vec<_> = entries(&bytes).collect();
        let expected: [(&str, &[u8]); 4] = [("a", b""), ("a/b", b""), ("a/b/c", b"hello"), ("a/d", b"b/c")];
        assert_eq!(found, expected);
        assert_eq!(file(&bytes, "a/b/c"), Some(&b"hello"[..]));
        for end in 0..bytes.len() {
            let _ = entries(&bytes[..end]).count();
        }
    }
}
