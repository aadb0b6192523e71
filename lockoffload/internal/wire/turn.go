package wire

// AppendTurn appends the message with which a client asks for a turn at a slot's lock
// or, with the sequence of such a request in of, ends that turn.
func AppendTurn(b []byte, client, seq uint64, slot, agent uint32, of uint64) []byte {
	at := len(b)
	r := ChainRequest{Client: client, Seq: seq, Slot: slot, Turn: TurnAsk, Agent: agent}
	if of == 0 {
		b = r.AppendTo(b)
		return append(b[:at], SealMessage(b[at:], 0)...)
	}
	r.Turn = TurnEnd
	b = AppendAccess(r.AppendTo(b), Access{Kind: AccessCompare, Version: of})
	return append(b[:at], SealMessage(b[at:], 1)...)
}
