//! Looking at a bucket without making or writing anything.

use std::path::Path;

use super::{EPOCH, Folder};
use crate::core::record::KeyState;
use crate::store::OpenError;
use crate::store::dir::permissions::{check_names, find_private};
use crate::store::dir::text::Names;
use crate::sys::Alarm;

impl Folder {
    /// Looks at the folder `base/bucket` without making or writing anything, and says
    /// how it stands; nothing where it is not there.
    ///
    /// # Errors
    ///
    /// As [`Folder::open`].
    pub(in crate::store::dir) fn inspect(
        base: &Path,
        bucket: &str,
        names: &Names,
    ) -> Result<Option<KeyState>, OpenError> {
        check_names(bucket, names)?;
        let path = base.join(bucket);
        let Some(dir) = find_private(base, &path)? else {
            return Ok(None);
        };
        let alarm =
            Alarm::new().map_err(|error| OpenError::Unreachable(format!("no timer: {error}")))?;
        let mut folder = Folder {
            dir,
            path,
            epoch: String::new(),
            inotify: None,
            alarm,
        };
        folder.epoch = match folder.file(EPOCH)? {
            Some(body) => body,
            None => return Ok(None),
        };
        folder.epoch_parts()?;
        let (key_state, _) = folder.state(names)?;
        Ok(Some(key_state))
    }
}
