//! Names of sessions, which several users can have.

use std::fmt;

/// A session: by the user that records by a grant, if it is one's, and its name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SessionKey {
    /// The user with the grant; none for sessions of the supervisor's own user.
    pub user: Option<u32>,
    /// The name.
    pub name: String,
}

impl SessionKey {
    /// A session of the supervisor's own user.
    pub fn own(name: impl Into<String>) -> Self {
        Self { user: None, name: name.into() }
    }

    /// A session of a user with a grant.
    pub fn of(user: u32, name: impl Into<String>) -> Self {
        Self { user: Some(user), name: name.into() }
    }

    /// Begin of names of files in the supervisor's folder: no two sessions have one. Names of
    /// sessions begin with a letter, so a number is a user's.
    pub fn file(&self, name: &str) -> String {
        self.user.map_or_else(|| name.to_owned(), |user| format!("{user}.{name}"))
    }

    /// Returns the session of such a begin.
    pub fn of_file(file: &str) -> Self {
        let of_user = file.split_once('.').and_then(|(user, name)| Some(Self::of(user.parse().ok()?, name)));
        of_user.unwrap_or_else(|| Self::own(file))
    }
}

impl fmt::Display for SessionKey {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.user {
            Some(user) => write!(formatter, "{} of user {user}", self.name),
            None => formatter.write_str(&self.name),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_sessions_differ_by_their_users() {
        for key in [SessionKey::own("a"), SessionKey::own("a.b"), SessionKey::of(1000, "a.b")] {
            assert_eq!(SessionKey::of_file(&key.file(&key.name)), key);
        }
        assert_eq!(SessionKey::of(7, "a").to_string(), "a of user 7");
    }
}
