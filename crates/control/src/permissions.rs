//! Users that may call a recorder or the supervisor.

use tompion_os::Peer;
use tompion_varlink::CallError;

/// Users that may look at what a process records, and change it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Permissions {
    /// Owner of the files that the process writes, which may look.
    owner: u32,
    /// User that the process runs as, which may do everything, as root may.
    user: u32,
}

impl Permissions {
    /// Returns those of the calling process.
    pub fn of_this_process() -> Self {
        Self { owner: tompion_os::file_user(), user: tompion_os::effective_user() }
    }

    /// Lets the owner of the files do everything.
    #[must_use]
    pub fn for_owner(self) -> Self {
        Self { user: self.owner, ..self }
    }

    /// Checks whether a user may connect, and look.
    ///
    /// # Errors
    /// The refusal, if it may not.
    pub fn admit(&self, user: u32) -> Result<(), CallError> {
        if self.admits(user) { Ok(()) } else { Err(CallError::permission_denied()) }
    }

    fn admits(&self, user: u32) -> bool {
        user == 0 || [self.owner, self.user].contains(&user) && tompion_os::is_one_user(user)
    }

    /// Checks whether the program at the other end may change anything.
    ///
    /// # Errors
    /// If it may not: `error`, the full name of the interface's own, with the user that may.
    pub fn check_may_change(&self, peer: Peer, error: &str) -> Result<(), CallError> {
        if peer.uid == 0 || peer.uid == self.user {
            return Ok(());
        }
        let needs = if self.user == 0 { "root".to_owned() } else { format!("user {}", self.user) };
        Err(CallError::new(error, "needs", needs))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_owner_may_look_and_the_user_and_root_may_change() {
        let permissions = Permissions { owner: 1000, user: 1001 };
        let may_change = |uid| permissions.check_may_change(Peer { pid: 1, uid }, "a.NotPermitted");
        assert_eq!([0, 1000, 1001, 1002].map(|user| permissions.admits(user)), [true, true, true, false]);
        assert_eq!([0, 1000, 1001, 1002].map(|user| may_change(user).is_ok()), [true, false, true, false]);
        let refused = may_change(1002).expect_err("a refusal");
        assert_eq!(
            (refused.name.as_str(), &refused.parameters["needs"]),
            ("a.NotPermitted", &"user 1001".into())
        );
        let of_root = Permissions { owner: 1000, user: 0 };
        let shared = of_root.for_owner();
        let may_change = |uid| shared.check_may_change(Peer { pid: 1, uid }, "a.NotPermitted").is_ok();
        assert_eq!([0, 1000, 1001].map(may_change), [true, true, false]);
        let refused = of_root.check_may_change(Peer { pid: 1, uid: 1000 }, "a.NotPermitted");
        assert_eq!(refused.expect_err("a refusal").parameters["needs"], "root");
    }
}
