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
        // Inode, mode, user, group, links, time, size, two devices of two numbers, length of the name, checksum.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_aligned_and_folders_come_first() {
        let mut archive = Archive::default();
        archive.file("a/b/c", b"hello");
        archive.link("a/d", "b/c");
        let bytes = archive.finish();
        let mut names = Vec::new();
        let mut at = 0;
        while at < bytes.len() {
            assert_eq!(&bytes[at..at + 6], b"070701");
            let field = |index: usize| {
                let text = std::str::from_utf8(&bytes[at + 6 + 8 * index..][..8]).unwrap();
                usize::from_str_radix(text, 16).unwrap()
            };
            let (size, name) = (field(6), field(11));
            let content = (at + 110 + name).next_multiple_of(4);
            names.push((
                String::from_utf8_lossy(&bytes[at + 110..at + 109 + name]).into_owned(),
                String::from_utf8_lossy(&bytes[content..content + size]).into_owned(),
            ));
            at = (content + size).next_multiple_of(4);
        }
        let expected = [("a", ""), ("a/b", ""), ("a/b/c", "hello"), ("a/d", "b/c"), (TRAILER, "")];
        assert_eq!(names, expected.map(|(name, content)| (name.to_owned(), content.to_owned())));
    }
}
