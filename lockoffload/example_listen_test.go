package lockoffload_test

import (
	"context"
	"fmt"
	"log"

	"github.com/goverbs/goverbs/lockoffload"
	"github.com/goverbs/goverbs/verbs"
)

var exampleKey = []byte("at least sixteen bytes, from a safe place")

// A target: a thousand slots, at an address.
func ExampleListen() {
	var pd *verbs.PD // dev, err := verbs.OpenDefault(...); pd, err := dev.AllocPD()
	target, err := lockoffload.Listen(pd, ":7473", lockoffload.ListenConfig{
		Layout: lockoffload.Layout{Slots: 1000, Size: 64}, Key: exampleKey,
	})
	if err != nil {
		log.Fatal(err)
	}
	defer target.Close()
}

// A first lock.
func ExampleDial() {
	var pd *verbs.PD
	ctx := context.Background()
	c, err := lockoffload.Dial(ctx, pd, "10.77.0.2:7473", lockoffload.DialConfig{Key: exampleKey})
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	_, err = c.Update(ctx, 7, func(old []byte) ([]byte, error) { return append([]byte("seen "), old...), nil })
	fmt.Println(err)
}
