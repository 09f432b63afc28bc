"""What a failure means for the next request, and how an answer becomes a typed error."""

import copy
import pickle

import pytest

from agentd.client import errors
from agentd.client.errors import DETAIL_LIMIT, AnswerError, TransportFault, answer_error
from agentd.client.retry import NO_RETRY, Backoff, Fault, classify, repeats_unasked
from agentd.client.secret import Secret, scrub


@pytest.mark.parametrize("status", [408, 500, 502, 503, 504, 599])
def test_passing_faults_are_retryable(status: int) -> None:
    assert classify(status) is Fault.RETRYABLE
    assert answer_error(status).retryable


@pytest.mark.parametrize("status", [301, 400, 403, 404, 405, 409, 410, 413, 415, 416, 507])
def test_refusals_are_final_and_a_full_disk_is_one(status: int) -> None:
    assert classify(status) is Fault.FINAL
    assert not answer_error(status).retryable


def test_401_is_a_credential_fault() -> None:
    assert classify(401) is Fault.CREDENTIAL
    assert isinstance(answer_error(401), errors.CredentialFault)


def test_no_answer_at_all_is_retryable() -> None:
    assert TransportFault("cut").retryable


def test_a_program_that_is_not_there_is_not_asked_for_again_unasked() -> None:
    assert repeats_unasked(500, "")
    assert not repeats_unasked(500, "spawn_failed")
    assert not repeats_unasked(404, "")


def test_the_back_off_is_the_contracts_ladder() -> None:
    ladder = Backoff()
    assert [ladder.after(n) for n in range(1, 7)] == [0.25, 0.5, 1.0, 2.0, 4.0, None]
    assert NO_RETRY.after(1) is None
    with pytest.raises(ValueError, match="back-off"):
        Backoff((-1.0,))
    with pytest.raises(ValueError, match="back-off"):
        Backoff((float("nan"),))


@pytest.mark.parametrize(
    ("status", "slug", "kind"),
    [
        (400, "malformed_request", errors.MalformedRequest),
        (400, "unknown_user", errors.UnknownUser),
        (400, "unknown_group", errors.UnknownGroup),
        (400, "unknown_shell", errors.UnknownShell),
        (400, "", errors.MalformedRequest),
        (404, "unknown_exec", errors.UnknownExec),
        (404, "", errors.NotFound),
        (408, "stdin_write_timeout", errors.StdinWriteTimeout),
        (409, "still_running", errors.StillRunning),
        (409, "already_acked", errors.AlreadyAcked),
        (409, "stdin_not_requested", errors.StdinNotRequested),
        (410, "stdin_closed", errors.StdinClosed),
        (413, "", errors.TooLarge),
        (413, "stdin_write_too_large", errors.TooLarge),
        (500, "spawn_failed", errors.SpawnFailed),
        (500, "stdin_write_failed", errors.StdinWriteFailed),
        (503, "", errors.Unavailable),
        (507, "", errors.DiskFull),
        (418, "newer_slug", AnswerError),
    ],
)
def test_each_answer_has_its_class(status: int, slug: str, kind: type[AnswerError]) -> None:
    error = answer_error(status, slug, "why")
    assert type(error) is kind
    assert (error.status, error.slug, error.detail) == (status, slug, "why")
    assert str(error).split()[0] == str(status)


def test_prose_from_the_guest_is_one_bounded_printable_line() -> None:
    error = answer_error(400, "malformed_request", "a\x1b[2J\r\nb\t\x07c" + "x" * 10_000)
    assert "\x1b" not in str(error)
    assert "\n" not in str(error)
    assert len(error.detail) <= DETAIL_LIMIT


def test_a_secret_shows_itself_only_when_asked() -> None:
    secret = Secret("open sesame"[:4] + "-sesame")
    for text in (
        repr(secret),
        str(secret),
        f"{secret}",
        f"{secret:>40}",
        repr([secret]),
        repr({"t": secret}),
    ):
        assert "sesame" not in text
    assert secret.reveal() == "open-sesame"
    assert secret == Secret("open-sesame")
    assert secret != Secret("other")
    with pytest.raises(TypeError):
        pickle.dumps(secret)
    with pytest.raises(TypeError):
        copy.copy(secret)


@pytest.mark.parametrize("text", ["", "sesame\nb", "sesame\rb", " sesame", "sesame ", "\x00", "sesame\x7f"])
def test_a_token_that_no_header_can_carry_is_refused_without_showing_it(text: str) -> None:
    with pytest.raises(ValueError, match="a token must") as refusal:
        Secret(text)
    assert "sesame" not in str(refusal.value)


def test_known_secrets_are_taken_out_of_text() -> None:
    assert scrub("Authorization: Bearer abc; abc", [Secret("abc")]) == "Authorization: Bearer ***; ***"
