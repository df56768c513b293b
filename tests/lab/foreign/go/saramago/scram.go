package saramago

import "github.com/xdg-go/scram"

// conversation of SCRAM-SHA-512: sarama leaves the mechanism to a library.
type conversation struct{ *scram.ClientConversation }

func (conversation *conversation) Begin(user, password, authorization string) error {
	client, err := scram.SHA512.NewClient(user, password, authorization)
	if err == nil {
		conversation.ClientConversation = client.NewConversation()
	}
	return err
}
